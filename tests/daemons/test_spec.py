"""What daemons the options come to: directories, devices by UUID, a CPU each."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpstui.core.model import Device
from mpstui.daemons.spec import DaemonSpec, Wish, log_dir_for, spec_of_profile, specs_of
from mpstui.plan.amounts import PlanError
from mpstui.plan.profile import DaemonProfile, Limits

GPUS = (Device("GPU-a", 0), Device("GPU-b", 1))


def specs(wish: Wish, devices: tuple[Device, ...] = GPUS, root: bool = True, **env: str) -> tuple[DaemonSpec, ...]:
    return specs_of(wish, devices, env, root=root)


def test_defaults_are_those_of_mps() -> None:
    assert specs(Wish()) == (DaemonSpec(Path("/tmp/nvidia-mps"), Path("/var/log/nvidia-mps")),)
    assert specs(Wish(), root=False)[0].log_dir == Path("/tmp/nvidia-mps-log")


def test_the_environment_counts_unless_an_option_is_given() -> None:
    env = {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps_7", "CUDA_MPS_LOG_DIRECTORY": "/tmp/logs"}
    assert specs(Wish(), **env) == (DaemonSpec(Path("/tmp/mps_7"), Path("/tmp/logs")),)
    assert specs(Wish(pipe_dir=Path("/run/x")), **env) == (DaemonSpec(Path("/run/x"), Path("/run/x-log")),)


def test_devices_become_uuids() -> None:
    assert specs(Wish(devices=("1", "GPU-a")))[0].devices == ("GPU-b", "GPU-a")
    assert specs(Wish(devices=("GPU-unseen",)), ())[0].devices == ("GPU-unseen",)
    for wish, devices, message in [
        (Wish(devices=("2",)), GPUS, r"no GPU “2”; there are: 0 \(GPU-a\), 1 \(GPU-b\)"),
        (Wish(devices=("0",)), (), "give its UUID"),
        (Wish(devices=("0", "GPU-a")), GPUS, "twice"),
    ]:
        with pytest.raises(PlanError, match=message):
            specs(wish, devices)


def test_one_daemon_a_gpu_each_on_its_own_cpu() -> None:
    found = specs(Wish(per_gpu=True, cpus=frozenset({4, 2, 9})))
    assert found == (
        DaemonSpec(Path("/tmp/mps_0"), Path("/tmp/mps_log_0"), ("GPU-a",), cpus=frozenset({2})),
        DaemonSpec(Path("/tmp/mps_1"), Path("/tmp/mps_log_1"), ("GPU-b",), cpus=frozenset({4})),
    )
    (only,) = specs(Wish(per_gpu=True, devices=("1",), pipe_dir=Path("/run/mps/gpu")))
    assert (only.pipe_dir, only.devices, only.cpus) == (Path("/run/mps/gpu_1"), ("GPU-b",), None)
    for wish, devices, message in [
        (Wish(per_gpu=True, cpus=frozenset({1})), GPUS, "need a CPU each"),
        (Wish(per_gpu=True), (), "NVML does not answer"),
        (Wish(per_gpu=True, log_dir=Path("/x")), GPUS, "cannot be shared"),
    ]:
        with pytest.raises(PlanError, match=message):
            specs(wish, devices)


def test_a_profile_as_a_daemon() -> None:
    profile = DaemonProfile(devices=("GPU-a",), multi_user=True, cpus=frozenset({1}), limits=Limits(50.0))
    assert spec_of_profile(profile, {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps_3"}) == DaemonSpec(
        Path("/tmp/mps_3"), Path("/tmp/mps_log_3"), ("GPU-a",), True, frozenset({1}), Limits(50.0)
    )


@pytest.mark.parametrize(
    ("pipe_dir", "log_dir"),
    [("/tmp/nvidia-mps_0", "/tmp/nvidia-mps_log_0"), ("/run/a/pipe", "/run/a/pipe-log")],
)
def test_logs_go_where_discovery_looks_for_them(pipe_dir: str, log_dir: str) -> None:
    assert log_dir_for(Path(pipe_dir)) == Path(log_dir)


@pytest.mark.parametrize("per_gpu", [False, True])
def test_the_root_is_no_pipe_directory(per_gpu: bool) -> None:
    with pytest.raises(PlanError, match="/ is no pipe directory"):
        specs(Wish(pipe_dir=Path("/"), per_gpu=per_gpu))
    assert log_dir_for(Path("/")) == Path("/mps_log")
