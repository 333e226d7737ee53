"""What the screens run on, with a stand-in daemon: files, /proc, start and stop for real."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from folders import place_for_daemons
from ui.snapshots import PIPE

from mpstui import api
from mpstui.cli.settings import NodeDaemons, NodePlans
from mpstui.control.channel import ControlChannel
from mpstui.control.mps import MpsControl
from mpstui.core import condition
from mpstui.core.model import Daemon
from mpstui.daemons.spec import Started, Wish
from mpstui.node import open_node
from mpstui.observe.watcher import NodeWatcher
from mpstui.operations.audit import AuditLog
from mpstui.operations.runner import OperationRunner
from mpstui.operations.types import ExitStatus
from mpstui.plan.profile import ProfileError, parse
from mpstui.sim.client import SimClient
from mpstui.sim.marker import control_binary
from mpstui.system.procfs import process_key

from .fakes import PROFILE, small

BINARY = control_binary()


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with place_for_daemons() as folder:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_VISIBLE_DEVICES"):
            monkeypatch.delenv(name, raising=False)
        yield folder


@dataclass
class Node:
    """What the runner needs of a collector that has not seen anything."""

    control_for: Callable[[Path], MpsControl]
    snapshot: None = None

    def request_refresh(self, pipe_dir: Path | None = None) -> None:
        return

    def heard(self, pipe_dir: Path) -> None:
        return None

    def changed(self, pipe_dir: Path) -> None:
        return


def backend(place: Path, *, read_only: bool = False, demo: bool = False) -> NodeDaemons:
    def control_for(pipe_dir: Path) -> MpsControl:
        return MpsControl(ControlChannel(pipe_dir, BINARY))

    runner = OperationRunner(Node(control_for), AuditLog(place / "audit.jsonl"), read_only=read_only)
    return NodeDaemons("nvidia-cuda-mps-control", runner, (place / "mps_0",), demo=demo)


async def test_profiles_are_written_listed_and_replaced_on_purpose(place: Path) -> None:
    plans = NodePlans(api.open().unentered())
    assert await plans.profiles() == ()
    path = await plans.save("two", parse(PROFILE), replace=False)
    (path.parent / "bad.toml").write_text("schema = 2")
    broken, good = await plans.profiles()
    assert (broken.name, broken.profile) == ("bad", None)
    assert "line 1: schema must be 1" in broken.problem
    assert good.profile == parse(PROFILE)
    with pytest.raises(ProfileError, match="already"):
        await plans.save("two", parse(PROFILE), replace=False)
    await plans.save("two", parse(PROFILE), replace=True)


async def test_in_force_keeps_the_shares_of_the_profile_that_it_replaces() -> None:
    found = await NodePlans(api.open().unentered()).in_force(small(), PIPE, parse(PROFILE))
    assert found.daemons[0].limits.active_thread_percentage == 100.0
    assert [share.name for share in found.daemons[0].shares] == ["alice", "bob"]
    with pytest.raises(ProfileError, match="gone"):
        await NodePlans(api.open().unentered()).in_force(small(), Path("/nowhere"), None)


async def test_the_environment_is_of_that_very_process() -> None:
    key = process_key(os.getpid())
    assert key is not None
    assert await NodePlans(api.open().unentered()).environment(key) is not None
    assert await NodePlans(api.open().unentered()).environment(type(key)(key.pid, 1)) is None


@pytest.mark.slow
async def test_a_daemon_is_started_off_the_loop_and_stopped(place: Path) -> None:
    daemons = backend(place)
    (spec,) = daemons.specs(Wish(multi_user=True, pipe_dir=place / "mps_0"), ())
    assert daemons.command(spec).startswith(f"CUDA_MPS_PIPE_DIRECTORY={place}/mps_0 CUDA_MPS_LOG_DIRECTORY={place}/")
    assert daemons.command(spec).endswith(" -d -M")
    told: list[str] = []
    started = await daemons.start(spec, told.append)
    assert started.done, started.message
    assert told[-1] == "waiting until it answers"
    again = await daemons.start(spec, told.append)
    assert "already" in again.message
    assert isinstance(started.outcome, Started)
    pid = started.outcome.pid or 0
    daemon = Daemon(spec.pipe_dir, key=process_key(pid), uid=os.geteuid(), condition=condition.ok())
    stopped = await daemons.stop(daemon, timeout=None, force=False, progress=told.append)
    assert stopped.done, stopped.message
    assert process_key(pid) is None


@pytest.mark.parametrize(("options", "says"), [({"read_only": True}, "read-only"), ({"demo": True}, "demo")])
async def test_read_only_and_a_demo_start_nothing(place: Path, options, says) -> None:
    daemons = backend(place, **options)
    (spec,) = daemons.specs(Wish(pipe_dir=place / "mps_0"), ())
    started = await daemons.start(spec, lambda text: None)
    assert started.status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert says in started.message
    assert not spec.pipe_dir.exists()


async def test_read_only_stops_nothing(place: Path) -> None:
    daemon = Daemon(place / "mps_0", key=process_key(os.getpid()), uid=os.geteuid(), condition=condition.ok())
    stopped = await backend(place, read_only=True).stop(daemon, timeout=1, force=True, progress=lambda text: None)
    assert stopped.status is ExitStatus.REFUSED_BY_SAFETY_RULE


async def test_a_daemon_that_is_started_comes_onto_a_screen_for_another_directory(place: Path) -> None:
    started = [
        await backend(place).start(backend(place).specs(Wish(pipe_dir=place / name), ())[0], lambda text: None)
        for name in ("mps_0", "mps_1")
    ]
    assert all(one.done for one in started), started
    sources, dirs = open_node((place / "mps_0",))
    collector = NodeWatcher(dirs, sources, refresh=0.1)
    runner = OperationRunner(collector, AuditLog(place / "a"))
    daemons = NodeDaemons("nvidia-cuda-mps-control", runner, dirs, demo=False, watch=collector.watch)
    client = SimClient(place / "mps_1", "busy", memory=1 << 30)

    def seen() -> bool:
        found = collector.snapshot.daemon(place / "mps_1") if collector.snapshot else None
        clients = [one for server in found.servers for one in server.clients] if found else []
        return any(one.pid == client.pid and one.gpu_memory for one in clients)

    try:
        await collector.start()
        await asyncio.to_thread(client.wait_settled)
        daemons.watch(place / "mps_1")
        daemons.watch(place / "mps_0")  # it is there already
        changed = asyncio.Event()
        collector.subscribe(lambda _: changed.set())
        while not seen():
            await asyncio.wait_for(changed.wait(), 120)
            changed.clear()
        assert [daemon.pipe_dir.name for daemon in collector.snapshot.daemons] == ["mps_0", "mps_1"]
    finally:
        client.close()
        await collector.stop()


def test_the_command_names_devices_and_cpus(place: Path) -> None:
    daemons = backend(place)
    profile = parse('schema = 1\n[[daemon]]\npipe_dir = "/tmp/mps_7"\ndevices = ["GPU-1"]\ncpu = "0-2"\n')
    (spec,) = daemons.specs_of_profile(profile)
    assert daemons.command(spec).split()[2:6] == ["CUDA_VISIBLE_DEVICES=GPU-1", "taskset", "-c", "0-2"]
