"""What a load is asked to be and what its workers report; values only. Bytes, seconds, percent, SMs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, cast, get_args

from mpstui.core.late import dataclass

if TYPE_CHECKING:  # every worker imports this module, and the model takes longer than all else of it
    from mpstui.core.model import ProcessKey

KernelName = Literal["nbody", "fma", "triad", "small", "memory", "endless", "illegal"]
KERNELS: Final = cast(tuple[KernelName, ...], get_args(KernelName))
DefaultStream = Literal["legacy", "per-thread"]
"""``legacy``: waits for all streams, and all wait for it. ``per-thread``: one like the others."""
DEFAULT_STREAM_NAMES: Final = cast(tuple[DefaultStream, ...], get_args(DefaultStream))
COPIED: Final = 32 << 20
"""Bytes of a copy where nobody has chosen."""
REQUESTED: Final[tuple[KernelName, ...]] = ("nbody", "fma", "triad", "small")
"""Kernels that can be launched for requests, in several streams, and with copies around each launch."""
WorkerState = Literal["starting", "ready", "running", "restarting", "stopping", "ended", "failed"]
"""``ready``: has its context and waits for the others. ``ended``: as it was asked to. ``failed``: see ``error``."""

COMMAND: Final = "command"
"""Stands for a kernel's name in reports of workers that run the user's own program."""


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """What a person is told of a kernel."""

    unit: str
    scale: float
    """Of the unit in the worker's own counts (interactions, operations, bytes, launches)."""
    text: str


INFO: Final[Mapping[str, KernelInfo]] = MappingProxyType(
    {
        "nbody": KernelInfo("Ginteractions/s", 1e9, "n-body, all pairs: bound by arithmetic"),
        "fma": KernelInfo("TFLOP/s", 1e12, "fused multiply-adds: bound by arithmetic alone"),
        "triad": KernelInfo("GB/s", 1e9, "a = b + s·c: bound by the memory's bandwidth"),
        "small": KernelInfo("launches/s", 1.0, "a few blocks a launch: bound by launches"),
        "memory": KernelInfo("GiB", 1 << 30, "takes memory until it is refused"),
        "endless": KernelInfo("", 1.0, "a kernel that never ends by itself"),
        "illegal": KernelInfo("", 1.0, "an illegal store after some seconds"),
        COMMAND: KernelInfo("s", 1.0, "the user's own program"),
    }
)


@dataclass(frozen=True, slots=True)
class Computation:
    """What a client of a load does; its worker is told the same (``Order``)."""

    kernel: KernelName | Literal["command"] = "fma"
    command: tuple[str, ...] = ()
    """The user's own program, where ``kernel`` is ``command``."""
    clients: int = 1
    seconds: float | None = None
    """None: until stopped."""
    amount: float | None = None
    """Ends each client once it has done this many interactions, operations, bytes or launches."""
    mps: bool = True
    metric: str = ""
    """Of a command: the regular expression whose first group is its throughput, in each line that it matches."""
    arrivals: float | None = None
    """Requests a second that each client gets, one launch each, by chance (Poisson); None: one launch after another."""
    busy: float | None = None
    """Percent of the time in which each client is at work, with pauses between; None: always."""
    bodies: int | None = None
    """Of ``nbody``; None: 65,536."""
    blocks: int | None = None
    """Of ``endless``, of one thread each; None: a block of 128 threads for each SM."""
    steps: int | None = None
    """Multiply-adds of each thread of ``small``, one after the other; None: 256, some microseconds."""
    streams: int | None = None
    """Streams in which each client launches, none of them waiting for another; None: in the default stream alone."""
    default_stream: DefaultStream | None = None
    """A launch of nothing in the default stream behind those of each stream, and which one that is; None: none."""
    copies: int | None = None
    """Bytes that are copied to the device before each launch and back after it, in pinned memory; None: none. In one
    stream one waits for the other, in several they overlap."""
    by_step: bool = False
    """With copies in several streams: the copies to the device of all streams, then all kernels, then all copies back;
    otherwise all three of one stream before those of the next."""
    stream_priority: int | None = None
    """Of the streams, as CUDA counts it: -3 comes before 0, among the streams of one client. None: no word of it."""


@dataclass(frozen=True, slots=True)
class LoadSpec(Computation):
    """One group of like clients."""

    device_uuid: str | None = None
    """None: the first device that CUDA shows."""
    percentages: tuple[float, ...] = ()
    """CUDA_MPS_ACTIVE_THREAD_PERCENTAGE: none, one for all, or one for each client."""
    sm_counts: tuple[int, ...] = ()
    """SMs by execution affinity: none, one for all, or one for each client (fact 22 says how they are rounded)."""
    memory_limit: str | None = None
    """CUDA_MPS_PINNED_DEVICE_MEM_LIMIT of each client as MPS writes it: ``2G``."""
    priority: int | None = None
    pipe_dir: Path | None = None
    """The daemon's; of no meaning with ``mps`` off."""
    connections: int | None = None
    """CUDA_DEVICE_MAX_CONNECTIONS: the queues into which the driver puts a process's streams."""
    private: bool = False
    """In a daemon of its own: a fault hits nobody else."""
    endanger: bool = False
    """Whoever asks for it knows whom it hurts, and wants it: see ``mpstui.operations.load.harm``."""
    pool: tuple[int, ...] = ()
    """SM counts for which a worker makes contexts ahead, so that its share can move while it runs. The supervisor
    shortens it to the contexts that the device has left."""


@dataclass(frozen=True, slots=True)
class PooledContext:
    """One context of a pool and what it cost."""

    sms: int
    seconds: float
    size: int
    """Bytes of device memory; 0 for the one that it started on, which it needs in any case."""


@dataclass(frozen=True, slots=True)
class WorkerError:
    """Why a worker ended, in words."""

    text: str
    remedy: str = ""
    code: int | None = None
    """The CUDA error; None where it was not CUDA's."""
    name: str = ""
    kind: str = "cuda"
    """``cuda``, or why: ``no_driver``, ``no_bindings``, ``no_mps``, ``died``, ``refused``, ``command`` …"""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The latest that is known of a worker."""

    worker: int
    """Its number in this supervisor; stays when it is restarted."""
    kernel: str
    state: WorkerState
    time: float
    """CLOCK_MONOTONIC seconds of the reading."""
    key: ProcessKey | None = None
    figure: float | None = None
    """In ``unit``; over the last quarter of a second. For a command: seconds since it started."""
    unit: str = ""
    done: float = 0.0
    """Interactions, operations, bytes or launches so far."""
    launches: int = 0
    copied: int | None = None
    """Bytes copied to the device and back so far; None: it copies nothing."""
    running_seconds: float = 0.0
    """Since it was told to go."""
    sms: int | None = None
    """The share of SMs that it launches on now."""
    levels: tuple[int, ...] = ()
    """The shares that it can change to at the next launch, ascending; at most one where it has to be restarted."""
    affinity: bool | None = None
    """Whether the device gives contexts a share of their own; None until known."""
    pool: tuple[PooledContext, ...] = ()
    switch_seconds: float | None = None
    """From the last change of share being asked for to the first work done under it."""
    memory: int | None = None
    """Bytes that it allocated itself; for a command what NVML counts for its processes."""
    percentage: float | None = None
    device_uuid: str | None = None
    device_name: str | None = None
    device_sms: int | None = None
    mps: bool | None = None
    """Whether its context is one of an MPS server; None where the driver does not say."""
    pids: tuple[int, ...] = ()
    """The processes of a command."""
    latency_p50: float | None = None
    """Seconds from when a request came to when it was done, in half of those of the last ten seconds; None: it gets no
    requests."""
    latency_p99: float | None = None
    """In 99 of 100."""
    metrics: tuple[float, ...] = ()
    """What a command said of its own throughput, in the order in which it said it."""
    no_metric: str = ""
    """What it said there first that is no finite number."""
    notes: tuple[str, ...] = ()
    error: WorkerError | None = None
    simulated: bool = False

    @property
    def pid(self) -> int | None:
        return self.key.pid if self.key else None

    @property
    def pool_seconds(self) -> float:
        """What making the pool took."""
        return sum(context.seconds for context in self.pool)

    @property
    def pool_bytes(self) -> int:
        """Device memory that the pool holds."""
        return sum(context.size for context in self.pool)

    @property
    def mean(self) -> float | None:
        """The figure over the whole run, in ``unit``; None where there is none. Of a program: its time."""
        if self.kernel in {COMMAND, "memory"}:
            return self.figure
        if not self.unit or self.running_seconds <= 0 or self.done <= 0:
            return None
        return self.done / self.running_seconds / INFO[self.kernel].scale

    @property
    def over(self) -> bool:
        """Whether its process has ended for good."""
        return self.state in {"ended", "failed"}


def value_for(values: tuple[float, ...] | tuple[int, ...], index: int) -> float | None:
    """The value of client ``index``: none given, one for all, or one for each."""
    if not values:
        return None
    return values[0] if len(values) == 1 else values[index]
