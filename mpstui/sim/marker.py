"""Tells a simulated node's pipe directory from a real one, and names the executable that stands in there."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

from mpstui.sim.simd.config import MARKER


def is_simulated(pipe_dir: Path) -> bool:
    """Whether the directory holds the marker of a simulated node, as a regular file; False where it cannot be read."""
    try:
        return stat.S_ISREG((Path(pipe_dir) / MARKER).lstat().st_mode)
    except (OSError, ValueError):
        return False


def control_binary() -> tuple[str, ...]:
    """The command that stands in for nvidia-cuda-mps-control."""
    script = Path(__file__).resolve().parent / "bin" / "nvidia-cuda-mps-control"
    return (sys.executable, "-I", "-S", str(script))
