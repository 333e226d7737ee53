"""What the panel asks a load to be: the fields, their checks, and the groups of clients that come of them."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from mpstui.core.late import dataclass
from mpstui.core.model import Daemon, Device, no_test_clients
from mpstui.core.partition import even_levels, rounding_of, shorten, sms_of
from mpstui.core.text import mps_size, plural, size_hint
from mpstui.load.footprint import Takes, pool_memory, takes
from mpstui.load.types import COPIED, INFO, REQUESTED, KernelName, LoadSpec, value_for
from mpstui.operations.check import NOT_YET
from mpstui.operations.load import harm as operation_harm

Hold = Literal["affinity", "percentage"]
"""``affinity``: of the context, so that it moves live (fact 23). ``percentage``: fixed when a client starts."""
Where = Literal["on", "private", "off"]

MOST_CLIENTS: Final = 64
"""A device takes 48 (fact 13); a few more show what the others are told."""
LEVELS: Final = 12
"""Contexts of a pool at most."""
LEFT_TO_OTHERS: Final = 8
"""Contexts of a device that pools leave free: a device that is full turns every new client away (fact 13)."""
WORD: Final = "endanger"
_MOVABLE: Final = frozenset({"nbody", "fma", "triad", "small", "illegal"})
"""Kernels that are launched again and again, so that the next launch can have another share."""
_CONTEXT_SECONDS: Final = 0.105
"""What making a context took (fact 23)."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a client launches its kernel: of ``LoadSpec``, what these are called there."""

    name: str
    text: str
    streams: int | None = None
    copies: int | None = None
    busy: float | None = None
    arrivals: float | None = None
    blocks: int | None = None
    """Of a kernel that never ends by itself."""

    def fits(self, kernel: str) -> bool:
        """Whether this kernel can be launched so."""
        return kernel == ENDLESS if self.blocks is not None else self is STEADY or kernel in REQUESTED


ENDLESS: Final = "endless"
_STREAMS: Final = "Launches in so many streams of each client: side by side, where small kernels leave room (Hyper-Q)."
_REQUESTS: Final = "Requests come at random times, one launch each. p50 and p99: time from arrival to end of a request."
STEADY: Final = Way("one after another", "Each launch begins when the last one ends: the client is always busy.")
WAYS: Final = (
    STEADY,
    *(Way(f"in {count} streams", _STREAMS, streams=count) for count in (4, 16, 32)),
    Way(
        "copies, in turn",
        "A copy to the device before each launch and one back: each waits for the last.",
        copies=COPIED,
    ),
    Way(
        "copies, overlapped",
        "A copy to the device before each launch and one back, in four streams: one copies while another computes.",
        streams=4,
        copies=COPIED,
    ),
    Way("busy 50 %", "Busy half of the time, with pauses between; with p50 and p99 of its launches.", busy=50.0),
    Way(
        "no pause",
        "A request is always under way; with p50 and p99 from its begin to its end.",
        busy=100.0,
    ),
    *(Way(f"{rate} requests/s", _REQUESTS, arrivals=float(rate)) for rate in (20, 100, 500)),
    Way("of one thread", "A kernel of one block of one thread; otherwise it has a block on each SM.", blocks=1),
)
LASTING_STEPS: Final = 200_000
"""Of ``small`` in streams: launches that last, some tenths of a millisecond, so that several are there at a time."""


def way(name: str) -> Way:
    """The way of this name. Raises StopIteration where there is none."""
    return next(each for each in WAYS if each.name == name)


@dataclass(frozen=True, slots=True)
class Setup:
    """All that can be chosen. A sequence that is shorter than the clients goes on with its last value."""

    kernels: tuple[KernelName, ...] = ("fma",)
    clients: int = 4
    devices: tuple[str, ...] = ()
    """UUIDs, taken in turn."""
    shares: tuple[float, ...] = ()
    """Percent of the SMs: none, one for all, or one for each client."""
    hold: Hold = "affinity"
    memory_limit: str = ""
    priority: tuple[int, ...] = ()
    """CUDA_MPS_CLIENT_PRIORITY: none, one for all, or one for each client."""
    seconds: float | None = None
    where: Where = "on"
    way: Way = STEADY

    def kernel_of(self, index: int) -> KernelName:
        return self.kernels[min(index, len(self.kernels) - 1)]

    def device_of(self, index: int) -> str | None:
        return self.devices[index % len(self.devices)] if self.devices else None

    def priority_of(self, index: int) -> int | None:
        return self.priority[min(index, len(self.priority) - 1)] if self.priority else None

    @property
    def kernel_names(self) -> str:
        """``fma``, or ``triad + fma``."""
        return " + ".join(self.kernels)


@dataclass(frozen=True, slots=True)
class PoolCost:
    """What the pools of all clients take; worked out from fact 23, not measured."""

    contexts: int
    clients: int
    """Those that have a pool."""
    size: int
    """Bytes."""
    seconds: float
    """For each client; clients make theirs at the same time."""


def problem(setup: Setup, daemon: Daemon | None, devices: Sequence[Device]) -> str | None:
    """Why it cannot be started as it stands, in one sentence."""
    if not 1 <= setup.clients <= MOST_CLIENTS:
        return f"1 to {MOST_CLIENTS} clients"
    if not all(math.isfinite(share) and 0 < share <= 100 for share in setup.shares):
        return "a share is above 0 and at most 100 percent"
    if len(setup.shares) not in {0, 1, setup.clients}:
        return f"{plural(len(setup.shares), 'share')} for {plural(setup.clients, 'client')}: give one, or one for each"
    if setup.memory_limit and mps_size(setup.memory_limit) is None:
        return size_hint(setup.memory_limit) or "a memory limit is written 900M, 10G or 10GiB"
    if setup.seconds is not None and not 0.1 <= setup.seconds <= 86400:
        return "0.1 to 86400 seconds, or nothing: until stopped"
    odd = next((kernel for kernel in setup.kernels if not setup.way.fits(kernel)), None)
    if odd is not None and setup.way.blocks is not None:
        return f"launches ‹{setup.way.name}› go with the kernel ‹{ENDLESS}›: choose ‹{STEADY.name}›"
    if odd is not None:
        return f"{odd} is launched once: choose launches ‹{STEADY.name}›"
    if setup.where == "on" and (daemon is None or daemon.explained):
        return "no daemon answers here: choose MPS ‹private› for one of its own, or ‹off›"
    if setup.where == "on" and daemon is not None and (reason := _not_for_us(daemon)) is not None:
        return f"{reason}; choose MPS ‹private› for one of its own, or ‹off›"
    if setup.where != "off" and setup.shares and setup.hold == "affinity":
        chosen = [d for d in devices if d.uuid in setup.devices] or list(devices)[:1]
        if not chosen or any(device.sm_count is None for device in chosen):
            return "the number of SMs of the device is not known: choose the method ‹percentage›"
    return None


def _not_for_us(daemon: Daemon) -> str | None:
    """Why no program is run on this daemon from here: it cannot be asked, or it is another user's, whose server would
    have all that the program has on the GPU."""
    if daemon.condition.cause in {"unasked", "starting"}:
        return NOT_YET
    if (reason := no_test_clients(daemon.protocol, daemon.static_partitioning)) is not None:
        return reason
    if daemon.simulated or daemon.speaker.uid in {0, os.geteuid()}:
        return None
    whose = daemon.speaker.why if daemon.speaker.uid is not None else "a daemon whose user is not known"
    return f"this is {whose}: mpstui load --pipe-dir runs a load on it anyway"


def harm(setup: Setup) -> str | None:
    """Whom it endangers, where it does: to be started only by somebody who has typed the word."""
    mps, private = setup.where != "off", setup.where == "private"
    return operation_harm(setup.kernels, mps=mps, private=private, memory_limit=setup.memory_limit)


def safer(setup: Setup) -> str:
    """What spares the others, where there is ``harm``."""
    if "memory" not in setup.kernels:
        return "MPS ‹private daemon›"
    return "MPS ‹on›, with a memory limit" if setup.where == "off" else "a memory limit"


def server_limit(setup: Setup, daemon: Daemon | None) -> float | None:
    """The percentage under which a client that starts now would be, whatever it asks for itself."""
    return limit_of(daemon) if daemon is not None and setup.where == "on" else None


def limit_of(daemon: Daemon) -> float | None:
    """The percentage of the daemon's first server, or the one that its next server will have."""
    return daemon.servers[0].active_thread_percentage if daemon.servers else daemon.default_active_thread_percentage


def held_back(setup: Setup, daemon: Daemon | None) -> str | None:
    """That the server's limit is lower than a share, where it is."""
    limit = server_limit(setup, daemon)
    if limit is None or limit >= max(setup.shares or (100.0,)):
        return None
    return (
        f"The server's limit is {limit:g} %: no share gets above that. "
        "l raises it for new clients, or MPS ‹private daemon› has none."
    )


def sm_counts(setup: Setup, devices: Sequence[Device]) -> tuple[int, ...]:
    """SMs that each client's share comes to, as the hardware rounds (fact 22); empty where that is not known."""
    counts = []
    for index in range(setup.clients):
        device = device_for(setup, index, devices)
        if device is None or device.sm_count is None or len(setup.shares) not in {0, 1, setup.clients}:
            return ()
        share = value_for(setup.shares, index)
        if share is not None and not 0 < share <= 100:
            return ()
        counts.append(device.sm_count if share is None else sms_of(share, device.sm_count, rounding_of(device)))
    return tuple(counts)


def under_limit(setup: Setup, counts: Sequence[int], limit: float | None, devices: Sequence[Device]) -> tuple[int, ...]:
    """What the counts come to under the server's limit, which no client gets past."""
    if limit is None:
        return tuple(counts)
    held = []
    for index, count in enumerate(counts):
        device = device_for(setup, index, devices)
        total = device.sm_count if device else None
        held.append(min(count, sms_of(limit, total, rounding_of(device))) if device and total else count)
    return tuple(held)


def device_for(setup: Setup, index: int, devices: Sequence[Device]) -> Device | None:
    """The device of one client."""
    uuid = setup.device_of(index)
    return next((d for d in devices if d.uuid == uuid), None) if uuid else next(iter(devices), None)


def pool_of(kernel: str, device: Device | None, limit: float | None) -> tuple[int, ...]:
    """The shares that a client can move between, up to what its server's ``limit`` leaves; empty where it cannot."""
    if kernel not in _MOVABLE or device is None or not device.sm_count:
        return ()
    rounding = rounding_of(device)
    most = device.sm_count if limit is None else sms_of(limit, device.sm_count, rounding)
    return even_levels(most, LEVELS, rounding.step, rounding.floor)


def live(setup: Setup) -> bool:
    """Whether shares are to move while it runs."""
    return setup.where != "off" and setup.hold == "affinity"


def pools(setup: Setup, devices: Sequence[Device], limit: float | None) -> tuple[tuple[int, ...], ...]:
    """The shares of which each client will make contexts ahead, as the supervisor gives them room: a device keeps some
    contexts for others. Empty where none does."""
    if not live(setup) or not 1 <= setup.clients <= MOST_CLIENTS or len(setup.shares) not in {0, 1, setup.clients}:
        return ()
    made: list[tuple[int, ...]] = []
    on: dict[str | None, int] = {}
    for spec in groups(setup, None, devices, limit):
        device = next((each for each in devices if each.uuid == spec.device_uuid), None)
        in_use = (device.contexts or 0) if device is not None and setup.where == "on" else 0
        free = (device.context_limit or 0) - in_use - LEFT_TO_OTHERS if device is not None else 0
        room = max(1, (free - on.get(spec.device_uuid, 0)) // spec.clients)
        for index in range(spec.clients):
            wanted = value_for(spec.sm_counts, index)
            pool = shorten(spec.pool, room, None if wanted is None else int(wanted)) if spec.pool else ()
            made.append(tuple(min(sms, spec.pool[-1]) for sms in pool))
            on[spec.device_uuid] = on.get(spec.device_uuid, 0) + max(1, len(pool))
    return tuple(made)


def pool_cost(setup: Setup, devices: Sequence[Device], limit: float | None) -> PoolCost | None:
    """What the pools will take; None where no share is to move."""
    made = [pool for pool in pools(setup, devices, limit) if pool]
    if not made:
        return None
    contexts, most = sum(map(len, made)), max(map(len, made))
    return PoolCost(contexts, len(made), sum(map(pool_memory, made)), most * _CONTEXT_SECONDS)


def taken(setup: Setup, devices: Sequence[Device], limit: float | None) -> Takes:
    """What the clients will take of their devices, together."""
    device = device_for(setup, 0, devices)
    return takes(
        map(setup.kernel_of, range(setup.clients)),
        device.sm_count if device else None,
        setup.memory_limit,
        pools(setup, devices, limit),
        setup.way.streams or 1,
        setup.way.copies or 0,
    )


def groups(
    setup: Setup, pipe_dir: Path | None, devices: Sequence[Device], limit: float | None, endanger: bool = False
) -> tuple[LoadSpec, ...]:
    """One group for each kernel, device and priority, in the order of the clients."""
    members: dict[tuple[KernelName, str | None, int | None], list[int]] = {}
    for index in range(setup.clients):
        alike = (setup.kernel_of(index), setup.device_of(index), setup.priority_of(index))
        members.setdefault(alike, []).append(index)
    counts = sm_counts(setup, devices)
    specs = []
    for (kernel, uuid, priority), indices in members.items():
        device = device_for(setup, indices[0], devices)
        shares = tuple(s for i in indices if (s := value_for(setup.shares, i)) is not None)
        mps = setup.where != "off"
        by_context = live(setup)
        specs.append(
            LoadSpec(
                kernel=kernel,
                clients=len(indices),
                device_uuid=uuid or (device.uuid if device else None),
                percentages=shares if mps and not by_context else (),
                sm_counts=tuple(counts[i] for i in indices) if by_context and shares and counts else (),
                memory_limit=(setup.memory_limit or None) if mps else None,
                priority=priority if mps else None,
                seconds=setup.seconds,
                mps=mps,
                pipe_dir=pipe_dir if mps else None,
                private=setup.where == "private",
                endanger=endanger,
                pool=pool_of(kernel, device, limit) if by_context else (),
                streams=setup.way.streams,
                copies=setup.way.copies,
                busy=setup.way.busy,
                arrivals=setup.way.arrivals,
                blocks=setup.way.blocks,
                steps=LASTING_STEPS if kernel == "small" and setup.way.streams else None,
            )
        )
    return tuple(specs)


def about_kernel(kernel: str) -> str:
    """What a kernel is bound by, and the unit of its figure."""
    info = INFO[kernel]
    return f"{info.text}; in {info.unit}" if info.unit else info.text
