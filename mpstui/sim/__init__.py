"""The simulated node: a stand-in control executable, a daemon behind it, and real processes as clients.

Only what tells a simulated node from a real one is imported at once: the start on a real node pays for nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mpstui.sim.marker import BrokenMarkerError, claim, control_binary, driver_of_node, is_simulated

if TYPE_CHECKING:
    from mpstui.sim.client import SimClient
    from mpstui.sim.node import SimError, SimNode
    from mpstui.sim.serving import serve
    from mpstui.sim.simd.config import MARKER, Gpu
    from mpstui.sim.sources import SimLaunches, SimNvml, SimProcesses, SimXids

__all__ = [
    "MARKER",
    "BrokenMarkerError",
    "Gpu",
    "SimClient",
    "SimError",
    "SimLaunches",
    "SimNode",
    "SimNvml",
    "SimProcesses",
    "SimXids",
    "claim",
    "control_binary",
    "driver_of_node",
    "is_simulated",
    "serve",
]

_LATE = {
    "MARKER": "simd.config",
    "Gpu": "simd.config",
    "SimClient": "client",
    "SimError": "node",
    "SimLaunches": "sources",
    "SimNode": "node",
    "SimNvml": "sources",
    "SimProcesses": "sources",
    "SimXids": "sources",
    "serve": "serving",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(name)
    return getattr(import_module(f"mpstui.sim.{_LATE[name]}"), name)
