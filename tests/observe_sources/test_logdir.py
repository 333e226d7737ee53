"""Where a daemon's logs are, and what they say of its version."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from mpstui.core.model import ProcessKey
from mpstui.observe import discovery
from mpstui.observe.discovery import binary_version, find_log_dir
from mpstui.system.trusted import owners_of
from tests.observe_sources.places import control_log

OURS = owners_of(None)
DATA = Path(__file__).parents[1] / "data"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")


@pytest.mark.parametrize(
    ("pipe_dir", "log_dir"),
    [
        ("mps_0", "mps_log_0"),
        ("nvidia-mps_3", "nvidia-log_3"),
        ("nvidia-mps", "nvidia-log"),
        ("nvidia-mps", "nvidia-mps-log"),
        ("nvidia.com/gpu/pipe", "nvidia.com/gpu/log"),
        ("mps-pipe-7", "mps-log-7"),
        ("pipes", "pipes/log"),
        ("pipes", "pipes_log"),
    ],
)
def test_log_directories_beside_pipe_directories(room: Path, pipe_dir: str, log_dir: str) -> None:
    (room / pipe_dir).mkdir(parents=True)
    (room / log_dir).mkdir(exist_ok=True)
    assert find_log_dir(room / pipe_dir, None, None) is None, "only with a control.log in it"
    control_log(room / log_dir)
    assert find_log_dir(room / pipe_dir, None, None) == room / log_dir
    assert find_log_dir(room / pipe_dir, None, room / "said") == room / "said"


@needs_root
def test_a_log_of_somebody_else_is_no_guess(room: Path) -> None:
    logs = control_log(room / "mps_log_0")
    os.chown(logs / "control.log", 65534, 65534)
    assert find_log_dir(room / "mps_0", None, None) is None
    key = ProcessKey(1, 1)
    daemon = discovery.DaemonProcess(key, 65534, 0.0, False, "legacy", None, None)
    assert find_log_dir(room / "mps_0", daemon, None) == logs


def test_the_default_log_directory_counts_for_the_default_pipe_directory_or_one_that_it_names(
    room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = (DATA / "h100" / "commands-control.log").read_text()
    logs = control_log(room / "default", recorded.replace("=/tmp/mps_0\n", f"={room}/mps_0\n"))
    monkeypatch.setattr("mpstui.observe.discovery.DEFAULT_LOG_DIR", logs)
    monkeypatch.setattr("mpstui.observe.discovery.DEFAULT_PIPE_DIR", room / "nvidia-mps")  # not this machine's
    assert find_log_dir(room / "nvidia-mps", None, None) == logs
    assert find_log_dir(room / "mps_0", None, None) == logs
    assert find_log_dir(room / "mps_1", None, None) is None
    assert find_log_dir(room / "mps_", None, None) is None


def test_the_version_of_the_recorded_daemon() -> None:
    assert binary_version(DATA / "h100", 480, OURS) is None
    recorded = DATA / "h100" / "commands-control.log"
    with tempfile.TemporaryDirectory() as directory:
        shutil.copy(recorded, Path(directory) / "control.log")
        assert binary_version(Path(directory), 480, OURS) == "13000"
        assert binary_version(Path(directory), None, OURS) == "13000"
        with open(Path(directory) / "control.log", "r+b") as log:
            log.seek(3 << 30)
            log.write(b"\n[2026-11-20 21:24:23.049 Control   9] CUDA MPS Control binary version: 13010\n")
        assert binary_version(Path(directory), 9, OURS) == "13010"
        assert binary_version(Path(directory), 480, OURS) == "13000"
