"""The kernels as work: what each allocates, how it is launched, and how much one launch does."""

from __future__ import annotations

import ctypes
import math
import random
import struct
from dataclasses import field
from functools import lru_cache
from importlib import resources
from typing import Final, Protocol

from mpstui.core.late import dataclass
from mpstui.load.driver import Arguments, CudaDriver, Handle
from mpstui.load.footprint import (
    BODIES,
    FMA_BLOCKS_PER_SM,
    FMA_THREADS,
    MIB,
    SMALL_BLOCKS,
    SMALL_STEPS,
    SMALL_THREADS,
    TRIAD_LARGEST,
)

FUNCTIONS: Final[dict[str, tuple[str, ...]]] = {
    "nbody": ("accelerate", "advance"),
    "fma": ("fma_chains",),
    "triad": ("triad",),
    "small": ("tick",),
    "memory": ("touch",),
    "endless": ("endless",),
    "illegal": ("illegal_store",),
}


def ptx(kernel: str) -> bytes:
    """The PTX of a kernel, as shipped."""
    return resources.files("mpstui.load").joinpath("kernels").joinpath(f"{kernel}.ptx").read_bytes()


@dataclass
class ContextShare:
    """One context of the pool with its functions."""

    context: Handle
    sms: int
    functions: dict[str, Handle]
    streams: tuple[Handle, ...] = (0,)
    """In each of them works a workload of its own."""
    events: list[tuple[Handle, ...]] = field(default_factory=list)
    """Of two batches: an event for each stream."""
    seconds: float = 0.0
    size: int = 0


class Workload(Protocol):
    """Work that is launched again and again. Memory belongs to a context, so it is taken and given back with it."""

    memory: int
    """Bytes that it holds now."""

    def enter(self, share: ContextShare) -> None: ...

    def launch(self, stream: Handle = 0) -> float:
        """Enqueue one launch of at most some milliseconds; how much work that is."""

    def leave(self) -> None:
        """Give back what ``enter`` took. All launches have ended."""


class Fma:
    """Eight blocks on each SM, all resident at once: 1.2 ms a launch on an H100 whatever the share."""

    STEPS: Final = 16384

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        self.memory = 0

    def enter(self, share: ContextShare) -> None:
        blocks = FMA_BLOCKS_PER_SM * share.sms
        self.memory = blocks * FMA_THREADS * 4
        self._out = self._driver.alloc(self.memory)
        self._blocks = blocks
        self._function = share.functions["fma_chains"]
        self._arguments = Arguments(
            ctypes.c_void_p(self._out), ctypes.c_int(self.STEPS), ctypes.c_float(0.999), ctypes.c_float(0.5)
        )

    def launch(self, stream: Handle = 0) -> float:
        self._driver.launch(self._function, self._blocks, FMA_THREADS, self._arguments, stream)
        return self._blocks * FMA_THREADS * 16.0 * self.STEPS

    def leave(self) -> None:
        self._driver.free(self._out)
        self.memory = 0


class Triad:
    """Three arrays of at most 1 GiB, far more than any cache, or what the memory leaves."""

    SMALLEST: Final = 2 * MIB
    CHUNK: Final = 256 * 4 * 16
    """Bytes that a block takes at a time; as many blocks as chunks, so that the last ones to run leave no gap."""

    def __init__(self, driver: CudaDriver, budget: int) -> None:
        self._driver = driver
        self._size = max(self.SMALLEST, min(TRIAD_LARGEST, budget // 3) // MIB * MIB)
        self._arrays: list[int] = []
        self.memory = 0

    def enter(self, share: ContextShare) -> None:
        for _ in range(3):
            self._arrays.append(self._driver.alloc(self._size))
            self.memory += self._size
        one = struct.unpack("<i", struct.pack("<f", 1.0))[0]
        for pointer in self._arrays[1:]:
            self._driver.fill(pointer, one, self._size // 4)
        self._blocks = -(-self._size // self.CHUNK)
        self._function = share.functions["triad"]
        self._arguments = Arguments(
            *(ctypes.c_void_p(pointer) for pointer in self._arrays),
            ctypes.c_float(0.5),
            ctypes.c_ulonglong(self._size // 16),
        )

    def launch(self, stream: Handle = 0) -> float:
        self._driver.launch(self._function, self._blocks, 256, self._arguments, stream)
        return 3.0 * self._size

    def leave(self) -> None:
        while self._arrays:
            self._driver.free(self._arrays.pop())
        self.memory = 0


class NBody:
    """65,536 bodies in a sphere; a launch covers as many of them as the share has room for, 3 ms on an H100."""

    TILE: Final = 128
    BLOCKS_PER_SM: Final = 4

    def __init__(self, driver: CudaDriver, bodies: int = BODIES) -> None:
        self._driver = driver
        self._bodies = bodies
        self._start = sphere(bodies)
        self._arrays: list[int] = []
        self._first = 0
        self.memory = 0

    def enter(self, share: ContextShare) -> None:
        size = self._bodies * 16
        for _ in range(3):
            self._arrays.append(self._driver.alloc(size))
            self.memory += size
        positions, velocities, accelerations = self._arrays
        self._driver.write(positions, self._start)
        self._driver.fill(velocities, 0, size // 4)
        self._driver.fill(accelerations, 0, size // 4)
        tiles = self._bodies // self.TILE
        self._blocks = min(self.BLOCKS_PER_SM * share.sms, tiles)
        self._first = 0
        self._functions = share.functions
        self._first_argument = ctypes.c_int(0)
        self._count_argument = ctypes.c_int(self._blocks * self.TILE)
        self._accelerate = Arguments(
            ctypes.c_void_p(positions),
            ctypes.c_void_p(accelerations),
            ctypes.c_int(self._bodies),
            self._first_argument,
            self._count_argument,
        )
        self._advance = Arguments(
            ctypes.c_void_p(positions),
            ctypes.c_void_p(velocities),
            ctypes.c_void_p(accelerations),
            ctypes.c_int(self._bodies),
            ctypes.c_float(1e-3),
        )

    def launch(self, stream: Handle = 0) -> float:
        count = min(self._blocks * self.TILE, self._bodies - self._first)
        self._first_argument.value = self._first
        self._count_argument.value = count
        self._driver.launch(self._functions["accelerate"], count // self.TILE, self.TILE, self._accelerate, stream)
        self._first += count
        if self._first == self._bodies:
            self._driver.launch(self._functions["advance"], self._bodies // self.TILE, self.TILE, self._advance, stream)
            self._first = 0
        return float(count) * self._bodies

    def leave(self) -> None:
        while self._arrays:
            self._driver.free(self._arrays.pop())
        self.memory = 0


class Small:
    """Four blocks of 64 threads and some microseconds, or longer with more steps."""

    def __init__(self, driver: CudaDriver, steps: int = SMALL_STEPS) -> None:
        self._driver = driver
        self._steps = steps
        self.memory = 0

    def enter(self, share: ContextShare) -> None:
        self.memory = SMALL_BLOCKS * SMALL_THREADS * 4
        self._out = self._driver.alloc(self.memory)
        self._function = share.functions["tick"]
        self._arguments = Arguments(ctypes.c_void_p(self._out), ctypes.c_int(self._steps))

    def launch(self, stream: Handle = 0) -> float:
        self._driver.launch(self._function, SMALL_BLOCKS, SMALL_THREADS, self._arguments, stream)
        return 1.0

    def leave(self) -> None:
        self._driver.free(self._out)
        self.memory = 0


class Nothing(Small):
    """A launch that does no work, for a stream that the others may have to wait for."""

    def __init__(self, driver: CudaDriver) -> None:
        super().__init__(driver, 1)

    def launch(self, stream: Handle = 0) -> float:
        super().launch(stream)
        return 0.0


class Copied:
    """Another workload, each launch of which waits for a copy to the device and is followed by one back, as a program
    works that gets its data from the host. What the kernel reads is its own: the copies are as large whatever it is."""

    def __init__(self, driver: CudaDriver, inner: Workload, size: int) -> None:
        """``size``: bytes of one copy. The host's memory is taken at once, and given back by ``close``."""
        self._driver = driver
        self._inner = inner
        self._size = size
        self._host = driver.pinned(size)
        self.memory = 0

    def enter(self, share: ContextShare) -> None:
        self._inner.enter(share)
        self._device = self._driver.alloc(self._size)
        self.memory = self._inner.memory + self._size

    def launch(self, stream: Handle = 0) -> float:
        self.bring(stream)
        amount = self.compute(stream)
        self.fetch(stream)
        return amount

    def bring(self, stream: Handle) -> None:
        """The copy to the device alone."""
        self._driver.copy_in(self._device, self._host, self._size, stream)

    def compute(self, stream: Handle) -> float:
        """The kernel alone, and how much work it is."""
        return self._inner.launch(stream)

    def fetch(self, stream: Handle) -> None:
        """The copy back alone."""
        self._driver.copy_out(self._host, self._device, self._size, stream)

    def leave(self) -> None:
        self._driver.free(self._device)
        self._inner.leave()
        self.memory = 0

    def close(self) -> None:
        self._driver.free_pinned(self._host)


def make_workload(
    kernel: str, driver: CudaDriver, budget: int, bodies: int = BODIES, steps: int = SMALL_STEPS
) -> Workload:
    """The work of a kernel that is launched again and again; ``budget`` is the bytes that it may take.

    The illegal store works as ``fma`` does until it is due.
    """
    if kernel == "nbody":
        return NBody(driver, bodies)
    if kernel == "triad":
        return Triad(driver, budget)
    if kernel == "small":
        return Small(driver, steps)
    return Fma(driver)


@lru_cache(maxsize=1)
def sphere(count: int, seed: int = 1) -> bytes:
    """Bodies x, y, z, mass as packed floats, evenly in the unit sphere; the same ones each time."""
    random_number = random.Random(seed).random  # noqa: S311 - positions of stars
    values: list[float] = []
    for _ in range(count):
        radius = random_number() ** (1 / 3)
        z = 2 * random_number() - 1
        angle = 2 * math.pi * random_number()
        flat = math.sqrt(1 - z * z)
        values += (radius * flat * math.cos(angle), radius * flat * math.sin(angle), radius * z, 1.0 / count)
    return struct.pack(f"<{len(values)}f", *values)
