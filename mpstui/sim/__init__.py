"""The simulated node: a stand-in control executable, a daemon behind it, and real processes as clients.

Nothing is imported before it is asked for: the start on a real node, and each simulated load worker, pay for no more.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpstui.sim.client import SimClient
    from mpstui.sim.marker import BrokenMarkerError, claim, control_binary, driver_of_node, is_simulated
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
    "BrokenMarkerError": "marker",
    "Gpu": "simd.config",
    "SimClient": "client",
    "SimError": "node",
    "SimLaunches": "sources",
    "SimNode": "node",
    "SimNvml": "sources",
    "SimProcesses": "sources",
    "SimXids": "sources",
    "claim": "marker",
    "control_binary": "marker",
    "driver_of_node": "marker",
    "is_simulated": "marker",
    "serve": "serving",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(name)
    return getattr(import_module(f"mpstui.sim.{_LATE[name]}"), name)
