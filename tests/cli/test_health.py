"""``status --health``: the exit status tells, no command is sent, and little is loaded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mpstui.doctor import health
from mpstui.sim.node import SimNode
from tests.cli.conftest import Mpstui

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimNode]:
    started = SimNode.start(tmp_path_factory.mktemp("health") / "node", gpus=1)
    yield started
    started.stop()


@pytest.fixture
def log(node: SimNode) -> Iterator[Path]:
    """The node's control.log, put back afterwards."""
    path = node.log_dir / "control.log"
    before = path.read_bytes()
    yield path
    path.write_bytes(before)


def daemon_of(node: SimNode) -> int:
    (place,) = health.discover((node.pipe_dir,))
    assert place.daemon is not None
    return place.daemon.pid


def stamped(pid: int, text: str, ago: float = 0.0) -> bytes:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - ago))
    return f"[{stamp}.000 Control {pid:>5}] {text}\n".encode()


def test_a_daemon_that_runs_is_well_and_is_asked_nothing(node: SimNode, mpstui: Mpstui) -> None:
    before = (node.log_dir / "control.log").read_bytes()
    run = mpstui("status", "--health", "--pipe-dir", node.pipe_dir)
    assert (run.status, run.out, run.err) == (0, "", "")
    run = mpstui("--pipe-dir", node.pipe_dir, "status", "--health")  # the whole parser's way
    assert (run.status, run.out, run.err) == (0, "", "")
    assert (node.log_dir / "control.log").read_bytes() == before


def test_by_the_environments_directory(node: SimNode, mpstui: Mpstui, tmp_path: Path) -> None:
    assert mpstui("status", "--health", CUDA_MPS_PIPE_DIRECTORY=str(node.pipe_dir)).status == 0
    assert mpstui("status", "--health", CUDA_MPS_PIPE_DIRECTORY=str(tmp_path / "none")).status == 3


def test_no_daemon_there(mpstui: Mpstui, tmp_path: Path, node: SimNode) -> None:
    run = mpstui("status", "--health", "--pipe-dir", tmp_path)
    assert (run.status, run.out) == (3, "")
    assert "exit status 3" in run.err
    both = mpstui("status", "--health", "--pipe-dir", node.pipe_dir, "--pipe-dir", tmp_path / "none")
    assert both.status == 3  # each that was named has to be well


def test_files_of_a_daemon_that_was_killed(tmp_path: Path, mpstui: Mpstui) -> None:
    other = SimNode.start(tmp_path / "node", gpus=1)
    try:
        pid = daemon_of(other)
        os.kill(pid, signal.SIGSTOP)
        deadline = time.monotonic() + 120
        while psutil.Process(pid).status() != psutil.STATUS_STOPPED:  # it runs on until the kernel lets it run
            assert time.monotonic() < deadline
        run = mpstui("status", "--health", "--pipe-dir", other.pipe_dir)
        assert (run.status, "is stopped" in run.err) == (4, True)
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 120
        while health.probe((other.pipe_dir,)).status != health.ABSENT:
            assert time.monotonic() < deadline
        assert mpstui("status", "--health", "--pipe-dir", other.pipe_dir).status == 3
    finally:
        other.stop()


@pytest.mark.parametrize(
    ("texts", "well"),
    [
        (["NEW UI"], False),
        (["NEW UI", "Cmd:terminate_client 1 2"], False),
        (["NEW UI", "Cmd:quit", "Not enough privilege to execute quit command"], False),
        (["NEW UI", "Cmd:quit", "Not enough privilege to execute quit command", "UI closed"], True),
        (["NEW UI", "Cmd:get_server_list", "UI closed"], True),
        (["NEW UI", "Cmd:ps", "5 2 7 GPU-0 1 Cmd:terminate_client", "UI closed"], True),
        (["NEW UI", "Starting control daemon using socket /x/control"], True),
        (["NEW CLIENT 5 from user 0: Server already exists"], True),
    ],
)
@pytest.mark.parametrize("seconds", [60.0, 1.0])
def test_a_session_that_stays_open(node: SimNode, log: Path, texts: list[str], well: bool, seconds: float) -> None:
    pid = daemon_of(node)
    log.write_bytes(log.read_bytes() + b"".join(stamped(pid, text, seconds) for text in texts))
    found = health.probe((node.pipe_dir,))
    assert found.status == (health.WELL if well or seconds < health.UNANSWERED else health.NO_ANSWER)
    assert ("does not answer" in found.reason) == (found.status != 0)


@pytest.mark.parametrize("seconds", [3600.0, 60.0, 1.0])
def test_a_daemon_that_is_told_to_quit_says_so_at_once(node: SimNode, log: Path, seconds: float) -> None:
    """It takes no command until its clients have ended (fact 19); nobody's session is in the way. Its tries to end its
    server fill the log meanwhile, three lines each 12.8 s."""
    pid = daemon_of(node)
    tries = stamped(pid, "Server 7 has 2 active worker threads. Server will not shutdown.") * int(seconds)
    log.write_bytes(log.read_bytes() + stamped(pid, "NEW UI", 9000) + stamped(pid, "Cmd:quit", seconds) + tries)
    found = health.probe((node.pipe_dir,))
    assert found.status == health.NO_ANSWER
    assert f"daemon {pid} is told to quit" in found.reason
    assert "takes no command" in found.reason
    assert not {"answer", "session"} & {*found.reason.split()}
    assert int(found.reason.partition("since ")[2].split()[0]) >= seconds


def test_a_session_counts_from_its_begin_not_from_its_last_command(node: SimNode, log: Path) -> None:
    pid = daemon_of(node)
    log.write_bytes(log.read_bytes() + stamped(pid, "NEW UI", 60) + stamped(pid, "Cmd:ps", 1))
    assert health.probe((node.pipe_dir,)).status == health.NO_ANSWER


def test_another_processes_lines_and_bad_times_tell_nothing(node: SimNode, log: Path) -> None:
    pid = daemon_of(node)
    log.write_bytes(log.read_bytes() + stamped(pid + 1, "NEW UI", 60))
    assert health.probe((node.pipe_dir,)).status == health.WELL
    bad = b"[2026-99-99 99:99:99.999 Control %5d] NEW UI\n[" % pid + b"\xff" * 9000
    log.write_bytes(log.read_bytes() + bad)
    assert health.probe((node.pipe_dir,)).status == health.WELL


@NEEDS_ROOT
def test_a_strangers_log_is_not_believed(node: SimNode, log: Path) -> None:
    log.write_bytes(stamped(daemon_of(node), "NEW UI", 60))
    assert health.probe((node.pipe_dir,)).status == health.NO_ANSWER
    os.chown(log, 4242, 4242)
    try:
        assert health.probe((node.pipe_dir,)).status == health.WELL
    finally:
        os.chown(log, 0, 0)


@pytest.mark.parametrize("more", [["--json"], ["--fields", "pid"], ["--at", "10:00"], ["--nonsense"], ["--pipe-dir"]])
def test_what_does_not_go_with_it_is_a_mistake(mpstui: Mpstui, more: list[str]) -> None:
    run = mpstui("status", "--health", *more)
    assert (run.status, run.out) == (2, "")


def test_little_is_loaded(node: SimNode) -> None:
    """What makes a start slow is not there: no parser, no event loop, no screen, no NVML."""
    program = (
        "import sys; sys.argv = ['mpstui', 'status', '--health', '--pipe-dir', sys.argv[1]];"
        "from mpstui.__main__ import main; status = main();"
        "print(status, *sorted({'argparse', 'asyncio', 'json', 'textual', 'rich', 'psutil', 'pynvml', 'subprocess',"
        "'mpstui.cli', 'mpstui.control.grammar', 'mpstui.observe.state', 'mpstui.fields'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(node.pipe_dir)], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == ["0"]


def test_a_strangers_daemon_is_nobodys_death_and_nobodys_life(
    node: SimNode, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may run a daemon and write into its log what he likes: it counts only where it is named."""
    log.write_bytes(log.read_bytes() + stamped(daemon_of(node), "NEW UI", 60))
    (place,) = health.discover((node.pipe_dir,))
    mine, strangers = place, place._replace(uid=4242)
    for places, status in (
        ((strangers,), health.ABSENT),
        ((mine,), health.NO_ANSWER),
        ((mine._replace(log_dir=None), strangers), health.WELL),
        ((mine._replace(state="stale"),), health.ABSENT),
        ((), health.ABSENT),
    ):
        monkeypatch.setattr(health, "discover", lambda *_, places=places: places)
        monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
        assert health.probe().status == status
    monkeypatch.setattr(health, "discover", lambda *_: (strangers,))
    assert health.probe((node.pipe_dir,)).status == health.NO_ANSWER
