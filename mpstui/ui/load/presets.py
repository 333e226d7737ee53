"""Partitionings that are worth seeing, each as values of the fields and a sentence on what to look at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

from mpstui.core.late import dataclass
from mpstui.load.types import KernelName
from mpstui.ui.load.setup import STEADY, Setup, Way, way

Shares = Callable[[int], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Preset:
    """``shares`` follow the number of clients when that is changed."""

    id: str
    title: str
    text: str
    kernels: tuple[KernelName, ...]
    clients: int
    shares: Shares
    private: bool = False
    all_devices: bool = False
    way: Way = STEADY
    priority: tuple[int, ...] = ()
    """None of its own: the one that was chosen for all."""

    def sets(self, names: Collection[str]) -> bool:
        """Whether one of these values is the preset's."""
        return bool({"kernels", "shares", "hold", "way"} & set(names)) or ("priority" in names and bool(self.priority))


def _none(_clients: int) -> tuple[float, ...]:
    return ()


def _even(clients: int) -> tuple[float, ...]:
    return (round(100 / max(1, clients), 1),)


def _half(clients: int) -> tuple[float, ...]:
    return (min(100.0, round(100 / (0.5 * max(1, clients)), 1)),)


def _thirty_seventy(_clients: int) -> tuple[float, ...]:
    return (30.0, 70.0)


def _fifty(_clients: int) -> tuple[float, ...]:
    return (50.0,)


def _noisy(clients: int) -> tuple[float, ...]:
    return (25.0, *[100.0] * (clients - 1))


_WRITE_UP = "The n-body comparison: look at the sum for 1, 2 and 4 clients, with MPS on and off."
PRESETS: Final = (
    Preset("even", "even shares", "All clients get the same number of SMs, 100 % together.", ("fma",), 4, _even),
    Preset("30-70", "30 : 70", "Throughput follows the SMs. Move one share and see.", ("fma",), 2, _thirty_seventy),
    Preset(
        "half",
        "half the clients",
        "Each may use twice its part, for clients of which half are busy at a time: shares overlap, idle SMs are used.",
        ("fma",),
        4,
        _half,
    ),
    Preset(
        "beside",
        "bandwidth | compute",
        "Triad needs a third of the SMs for full memory bandwidth. Shrink client 1: down to a third it loses nothing.",
        ("triad", "fma"),
        2,
        _fifty,
    ),
    Preset("one", "1 client", _WRITE_UP, ("nbody",), 1, _none),
    Preset("two", "2 clients", _WRITE_UP, ("nbody",), 2, _none),
    Preset("four", "4 clients", _WRITE_UP, ("nbody",), 4, _none),
    Preset(
        "noisy",
        "noisy neighbour",
        "Client 1 may use 25 % and gets less: a limit keeps nothing free. Shrink the others and it comes back.",
        ("fma",),
        4,
        _noisy,
    ),
    Preset(
        "requests",
        "requests",
        "Requests come at random times. Shrink one and its p99 grows within a second; the others' stay.",
        ("fma",),
        4,
        _even,
        way=way("100 requests/s"),
    ),
    Preset(
        "busy",
        "busy 50 %",
        "Each client is idle half of the time; the shares add up to 200 %. Busy clients use the idle SMs; p99 rises.",
        ("fma",),
        4,
        _half,
        way=way("busy 50 %"),
    ),
    Preset(
        "streams",
        "streams",
        "One client fills SMs that one stream leaves idle. Try ‹one after another›, 1 and 16 clients, MPS on and off.",
        ("small",),
        1,
        _none,
        way=way("in 16 streams"),
    ),
    Preset(
        "copies",
        "copies",
        "One client copies and computes at once, in four streams. Try launches ‹copies, in turn›, 1 and 4 clients.",
        ("fma",),
        1,
        _none,
        way=way("copies, overlapped"),
    ),
    Preset(
        "priority",
        "priority",
        "Client 2 has priority below normal; both always run a request. Compare their p99. H200: no difference seen.",
        ("fma",),
        2,
        _none,
        way=way("no pause"),
        priority=(0, 1),
    ),
    Preset(
        "gpu-util",
        "gpu-util",
        "One thread: GPU-Util says 100 %, SMs busy below 1 %. Then launches ‹one after another›: a block on each SM.",
        ("endless",),
        1,
        _none,
        private=True,
        way=way("of one thread"),
    ),
    Preset(
        "fault",
        "fault containment",
        "Client 1 makes an illegal store after 3 s: clients on its GPU are lost, clients on other GPUs run on.",
        ("illegal", "fma"),
        4,
        _none,
        private=True,
        all_devices=True,
    ),
)


def apply(chosen: Preset, setup: Setup, devices: Sequence[str], *, has_daemon: bool = True) -> Setup:
    """The fields as the preset has them. Limits, time, MPS off and a priority for all stay as they were chosen."""
    where = setup.where
    if chosen.private or not has_daemon:
        where = "private"
    elif where == "private":
        where = "on"
    kept = tuple(devices) if chosen.all_devices else setup.devices[:1] or tuple(devices[:1])
    return replace(
        setup,
        kernels=chosen.kernels,
        clients=chosen.clients,
        shares=chosen.shares(chosen.clients),
        hold="affinity",
        devices=kept,
        where=where,
        way=chosen.way,
        priority=chosen.priority or (setup.priority if len(setup.priority) < 2 else ()),
    )
