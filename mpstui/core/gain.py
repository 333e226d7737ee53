"""Whether a device would gain from MPS, or from more clients of it, by what its meters say at this moment; pure.

Candidates for MPS are programs of few blocks a grid, of low occupancy, and with pauses between their kernels.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from mpstui.core.model import Device, Snapshot

_AT_WORK: Final = 50.0
"""Percent of GPU-Util from which on there is enough work to tell how it uses the device."""
_ROOM: Final = 50.0
"""Percent of SM activity below which most SMs have no work."""
_THIN: Final = 25.0
"""Percent of occupancy below which SMs have work, but few threads of it."""
_MEASURE: Final = "mpstui experiment command measures what several clients gain"
IDLE: Final = "too little work now to tell what MPS would gain"


class Gain(NamedTuple):
    """What is known of it."""

    would: Literal[True] | None
    """None: its meters do not tell. There is no figure by which nobody would gain."""
    text: str
    """The figures and what follows from them."""
    remedy: str = ""
    """Where several processes take turns on it without MPS."""
    at_work: bool = True
    """Whether there is enough work to tell anything of."""
    in_use: bool = False
    """Whether its SMs have work, and no programs take turns on it: nothing is amiss, whatever more clients gain."""


def gain_of(device: Device, snapshot: Snapshot) -> Gain:
    """Of a device of the snapshot, which knows the processes that compute on it without being clients."""
    util, sms, warps = device.gpu_utilization, device.sm_utilization, device.sm_occupancy
    if util is None:
        return Gain(None, "NVML does not tell how busy it is", at_work=False)
    known = (("GPU-Util", util), ("SM activity", sms), ("occupancy", warps))
    figures = ", ".join(f"{name} {value:.0f} %" for name, value in known if value is not None)
    if util < _AT_WORK:
        return Gain(None, f"{figures}: {IDLE}", at_work=False)
    if sms is None:
        text = (
            f"{figures} says that some kernel runs, not how much of the GPU it uses, and NVML has no SM activity here"
        )
        return Gain(None, f"{text}; {_MEASURE}")
    past_mps = sum(device.uuid in process.device_uuids for process in snapshot.outside)
    if sms >= _ROOM and (warps is None or warps >= _THIN):
        # No figure is known above which nobody gains: four programs in turn at 93 and 92 % gained 13 % by MPS. Each of
        # them has the SMs to itself in turn: how little of them that leaves to another is not told.
        gain = (
            f"whether {past_mps} programs outside MPS gain from it is" if past_mps > 1 else "what more clients gain is"
        )
        return Gain(
            None, f"{figures}: its SMs are in use; {gain} measured by mpstui experiment command", in_use=past_mps < 2
        )
    idle = "most SMs have no work" if sms < _ROOM else "its SMs are busy, but each with few threads"
    if past_mps > 1:
        text = f"{figures}: {idle}, and {past_mps} processes take turns on it without MPS"
        return Gain(True, text, "Start them as clients of one daemon: see mpstui why PID.")
    if sms >= _ROOM:  # kernels of few threads may use all that an SM has, as those of matrix products do
        return Gain(None, f"{figures}: {idle}: more clients may gain; {_MEASURE}", in_use=True)
    return Gain(True, f"{figures}: {idle}: room for more clients; {_MEASURE}")
