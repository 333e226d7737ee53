"""Tells a simulated node's pipe directory from a real one, and names the executable that stands in there."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from mpstui.sim.simd.config import MARKER


def is_simulated(pipe_dir: Path) -> bool:
    """Whether the directory holds the marker of a simulated node; False where it cannot be read.

    The marker is a regular file of the directory's owner, of root or of this user: nobody else can pass a real
    daemon's directory off as a simulated one.
    """
    try:
        marker = (Path(pipe_dir) / MARKER).lstat()
        owners = {0, os.geteuid(), Path(pipe_dir).stat().st_uid}
        return stat.S_ISREG(marker.st_mode) and marker.st_uid in owners
    except (OSError, ValueError):
        return False


def control_binary() -> tuple[str, ...]:
    """The command that stands in for nvidia-cuda-mps-control."""
    script = Path(__file__).resolve().parent / "bin" / "nvidia-cuda-mps-control"
    return (sys.executable, "-I", "-S", os.fspath(script))
