"""The simulated node: a stand-in control executable, a daemon behind it, and real processes as clients."""

from mpstui.sim.client import SimClient
from mpstui.sim.marker import control_binary, is_simulated
from mpstui.sim.node import SimError, SimNode
from mpstui.sim.serving import serve
from mpstui.sim.simd.config import MARKER, Gpu
from mpstui.sim.sources import SimNvml, SimProcesses

__all__ = [
    "MARKER",
    "Gpu",
    "SimClient",
    "SimError",
    "SimNode",
    "SimNvml",
    "SimProcesses",
    "control_binary",
    "is_simulated",
    "serve",
]
