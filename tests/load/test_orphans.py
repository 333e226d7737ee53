"""Nothing is left when the supervisor ends, however it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mpstui.load.private_daemon import PrivateDaemon, PrivateDaemonError
from mpstui.sim.marker import control_binary
from mpstui.sim.node import SimNode

from .conftest import gone, processes_with

SUPERVISOR = """
import asyncio, sys
from pathlib import Path
from mpstui.load.private_daemon import PrivateDaemon
from mpstui.load.supervisor import Supervisor
from mpstui.load.types import LoadSpec
from mpstui.sim.marker import control_binary
from mpstui.sim.load import worker_command

async def main():
    async with PrivateDaemon(control_binary()) as daemon:
        supervisor = Supervisor(worker_command=worker_command(daemon.pipe_dir))
        await supervisor.start(LoadSpec("fma", clients=2, pipe_dir=daemon.pipe_dir))
        program = ("sh", "-c", "setsid sleep 600 & sleep 600")
        await supervisor.start(LoadSpec("command", command=program, mps=False))
        while not all(w.state == "running" for w in supervisor.workers) or not supervisor.workers[2].pids[1:]:
            await asyncio.sleep(0.02)
        pids = [p for w in supervisor.workers for p in (w.pid, *w.pids)]
        print(daemon.pipe_dir, *pids, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_a_supervisor_that_is_killed_leaves_no_worker_no_program_no_daemon_no_file(number: int) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SUPERVISOR, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), 120)).decode().split()
    folder, pids = Path(line[0]).parent, [int(word) for word in line[1:]]
    others = processes_with(str(folder))
    assert len(others) >= 3, "the guard, the daemon and its server"
    process.send_signal(number)
    await asyncio.wait_for(process.wait(), 120)
    await gone([*pids, *others])
    assert not processes_with(str(folder))
    assert not folder.exists()


@pytest.mark.slow
async def test_a_private_daemon_comes_and_goes(node: SimNode) -> None:
    async with PrivateDaemon(control_binary()) as daemon:
        folder = daemon.pipe_dir.parent
        assert daemon.pipe_dir != node.pipe_dir
        assert (await daemon.control.get_server_list()).ok
        pids = processes_with(str(folder))
    assert pids
    await gone(pids)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("binary", "words"),
    [
        (("/nonexistent/control",), "cannot be run: it is not there"),
        (("sh", "-c", "echo no licence >&2; exit 4"), "no licence"),
    ],
)
async def test_a_private_daemon_that_does_not_start_says_why(binary: tuple[str, ...], words: str) -> None:
    with pytest.raises(PrivateDaemonError, match=words):
        async with PrivateDaemon(binary):
            pass


async def test_a_private_daemon_whose_start_is_given_up_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM in that moment left it."""

    async def given_up(*_command: object, **_options: object) -> None:
        assert os.listdir(tmp_path)
        raise asyncio.CancelledError

    monkeypatch.setattr("mpstui.load.private_daemon.temporary_place", lambda: tmp_path)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", given_up)
    with pytest.raises(asyncio.CancelledError):
        await PrivateDaemon(("true",)).__aenter__()
    assert os.listdir(tmp_path) == []


async def test_no_place_for_a_private_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mpstui.load.private_daemon.tempfile.mkdtemp", full)
    with pytest.raises(PrivateDaemonError, match="No space left on device"):
        async with PrivateDaemon(("true",)):
            pass


def test_a_worker_whose_supervisor_is_gone_already_does_not_begin() -> None:
    order = b'{"kernel": "fma", "parent": 1}\n'
    done = subprocess.run([sys.executable, "-m", "mpstui.load.worker"], input=order, capture_output=True, timeout=120)
    assert done.returncode != 0
    assert done.stdout == b""


@pytest.mark.parametrize("sent", [b"", b"nonsense\n", b"[]\n", b"{}\n"])
def test_a_worker_without_an_order_ends(sent: bytes) -> None:
    done = subprocess.run([sys.executable, "-m", "mpstui.load.worker"], input=sent, capture_output=True, timeout=120)
    assert done.returncode != 0
    assert b"Traceback" not in done.stderr


@pytest.mark.slow
def test_who_keeps_a_daemon_imports_no_event_loop_and_the_screens_process_no_cuda() -> None:
    program = (
        "import sys, mpstui.load.guard; assert 'asyncio' not in sys.modules;"
        "import mpstui.load.supervisor, mpstui.load.experiments, mpstui.load.stopping;"
        "sys.exit(any(name.split('.')[0] == 'cuda' or name == 'mpstui.load.driver' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=120).returncode == 0
    package = Path(__file__).resolve().parents[2] / "mpstui"
    assert [p.name for p in package.rglob("*.py") if "cuda.bindings.driver" in p.read_text()] == ["driver.py"]
