"""The readings that the reducer folds beside those of /proc, the interfaces behind which a real or a simulated node
gives them all, and the thread in which they are read."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from mpstui.core.late import dataclass
from mpstui.core.model import Device, ProcessKey, empty

if TYPE_CHECKING:
    import asyncio

    from mpstui.core.xid import Xid
    from mpstui.system.procfs import ProcessFacts

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NvmlSample:
    """One reading of all devices."""

    time: float
    driver_version: str | None = None
    devices: tuple[Device, ...] = ()
    """``contexts`` is not NVML's to know and stays None here."""
    mps_clients: Mapping[str, Mapping[int, int | None]] = field(default_factory=empty)
    """Device UUID to {PID: bytes} of MPS clients (``nvmlDeviceGetMPSComputeRunningProcesses``, fact 9); with 0 bytes
    where it is a device of their server on which they have no context (fact 34)."""
    processes: Mapping[str, Mapping[int, int | None]] = field(default_factory=empty)
    """Device UUID to {PID: bytes} of all compute processes, the MPS server among them (fact 9)."""
    error: str | None = None
    """Why there is no reading; the other fields are then empty."""


class NvmlSource(Protocol):
    """Readings of the devices. ``sample`` may block (NVML takes 1–10 ms); the caller runs it off the event loop."""

    def sample(self) -> NvmlSample: ...

    def steady(self) -> NvmlSample:
        """A sample where nobody is known to have come or gone since the last one: lists of processes that nothing
        speaks against may be some seconds old, and so may modes of devices that an admin alone changes."""
        ...

    def rated(self) -> NvmlSample:
        """A sample that also tells what is counted between two readings, where devices tell it: up to 0.1 s longer."""
        ...

    def membership(self) -> Mapping[str, Mapping[int, int | None]]:
        """Only the MPS clients by device UUID, {PID: bytes}: cheap enough for several times a second (≤ 1 ms).

        A device whose list is not known is missing; without NVML the answer is empty.
        """
        ...

    def close(self) -> None: ...


class ProcessSource(Protocol):
    """Facts of processes by PID; one that is gone is missing from the answer."""

    def facts(self, pids: Iterable[int]) -> dict[int, ProcessFacts]: ...


class LaunchReading(NamedTuple):
    """Launches so far, since each was counted first; a process that is not counted is missing."""

    time: float
    """Monotonic seconds."""
    counts: Mapping[ProcessKey, int]


class LaunchSource(Protocol):
    """Counters of launches. The calls may block for some tenths of a second; nobody calls two at a time."""

    @property
    def how(self) -> str:
        """In words, for a person; empty before the first :meth:`attach`."""

    @property
    def launch_seconds(self) -> float:
        """What one launch costs its process while it is counted."""

    def attach(self, keys: Collection[ProcessKey]) -> Mapping[ProcessKey, str]:
        """Count these from now on, and nobody else; answers of whom that cannot be done, and why."""

    def read(self) -> LaunchReading: ...

    def detach(self) -> None:
        """Costs nobody anything until the next :meth:`attach`."""

    def close(self) -> None: ...


class XidSource(Protocol):
    """Where Xids come from. Called from one thread of its owner's."""

    def past(self) -> list[Xid]:
        """Those of before that are still to be had, oldest first; to be asked before the first :meth:`wait`."""

    def wait(self, seconds: float) -> list[Xid]:
        """Those since the last call; comes back after about ``seconds`` where there is none. Never raises."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class NodeSources:
    """All that differs between a real and a simulated node."""

    simulated: bool
    control_binary: tuple[str, ...]
    """The command to run, e.g. ``("nvidia-cuda-mps-control",)``."""
    nvml: NvmlSource
    processes: ProcessSource
    foreign: Callable[[Path], bool] = lambda pipe_dir: False
    """Whether a discovered pipe directory belongs to the other kind of node, and so is none of this one's."""
    claim: Callable[[Path], str | None] = lambda pipe_dir: None
    """What a pipe directory says of itself and cannot prove, in words to show; None where it says nothing."""
    add: Callable[[Path], None] = lambda pipe_dir: None
    """Tells of one more pipe directory; real sources read the whole machine."""
    elsewhere: Callable[[Collection[tuple[int, int]]], Mapping[tuple[int, int], ProcessKey]] = lambda claims: {}
    """The processes that the kernel joins with the inode of a PID namespace and a number in it. May block."""
    worker_command: Callable[[Path | None], tuple[str, ...]] | None = None
    """What is started as a test client of the daemon in a pipe directory, or without MPS; None: CUDA's own workers."""
    set_compute_mode: Callable[[str, str], str | None] = lambda uuid, mode: "it cannot be set here"
    """Sets the compute mode of a device: why it could not be, or None. May block."""
    xids: Callable[[], XidSource] | None = None
    """Opens what the driver says of faults; whoever does closes it."""
    hidden: str = ""
    """What stands for the commands of clients that a daemon tells, where a policy hides those of others."""
    launches: Callable[[], LaunchSource] | None = None
    """Opens counters of kernel launches; whoever does closes them."""


# One owned thread for calls that may block for ever: a hung driver must stop neither the event loop nor the exit.


_Job = Callable[[], None]


class BlockingCalls:
    """Runs calls one after the other in a daemon thread. While one of them hangs, the later ones wait with it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """The answer of ``function``, or its exception, as a future of the running loop."""
        import asyncio  # only who has a loop pays for it

        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._thread is None:
            self._thread = threading.Thread(target=_run, args=(self._jobs,), name=self._name, daemon=True)
            self._thread.start()

        def job() -> None:
            try:
                result, error = function(), None
            except Exception as raised:  # handed to whoever asked
                result, error = None, raised
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(_settle, future, result, error)

        self._jobs.put(job)
        return future

    def close(self, last: Callable[[], None] | None = None) -> None:
        """Ends the thread after ``last``, without waiting for it; a later call begins a new one."""
        if self._thread is None:
            return
        jobs, self._jobs, self._thread = self._jobs, SimpleQueue(), None
        if last is not None:
            jobs.put(last)
        jobs.put(None)


def _run(jobs: SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job()


def _settle(future: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
