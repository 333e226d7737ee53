"""A device without hardware for the worker's loop, and a line to a supervisor that is the test."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from mpstui.load.driver import Arguments, CudaError, DeviceFacts
from mpstui.load.protocol import Order

MIB = 1 << 20


class Ended(Exception):
    """The worker would have ended its process."""


class FakeChannel:
    """Collects what the worker says; ``script`` is called before each look at the commands."""

    def __init__(self, script: Callable[[FakeChannel], None] = lambda _: None) -> None:
        self.said: list[dict[str, Any]] = []
        self.commands: list[dict[str, Any]] = []
        self.stopping = False
        self.looks = 0
        self._script = script

    def take(self) -> list[dict[str, Any]]:
        self.looks += 1
        self._script(self)
        taken, self.commands = self.commands, []
        return taken

    def wait(self, timeout: float | None) -> list[dict[str, Any]]:
        return self.take()

    def wait_for_go(self) -> bool:
        return not self.stopping

    def say(self, kind: str, /, *, droppable: bool = False, **values: Any) -> None:
        self.said.append({"type": kind, **values})

    def end(self, **values: Any) -> None:
        self.say("end", **values)
        raise Ended

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.said if message["type"] == kind]


class FakeDriver:
    """132 SMs with memory to count; every kernel ends at once, and the fakes of two of them do what is asked."""

    def __init__(
        self, *, affinity: bool = True, memory: int = 80_000 * MIB, context_size: int = 100 * MIB, contexts: int = 48
    ) -> None:
        self.affinity = affinity
        self.free_bytes = memory
        self.total = memory
        self.context_size = context_size
        self.contexts_left = contexts
        self.contexts: dict[int, int | None] = {}
        self.current = 0
        self.launched: list[tuple[str, int, int]] = []
        """Function, blocks, and the context that was current."""
        self.enqueued: list[tuple[str, int]] = []
        """Kernels and copies in the order in which they were enqueued, with the stream."""
        self.streams: dict[int, tuple[int, bool]] = {0: (0, True), 2: (0, True)}
        self.priorities: dict[int, int | None] = {}
        """Number to context (0: of each) and whether it is a blocking one."""
        self.hosts: dict[int, int] = {}
        self.blocks: dict[int, tuple[int, int]] = {}
        """Pointer to size and context."""
        self.recorded: set[object] = set()
        self._next = 0x1000
        self.word = ctypes.c_int(0)

    def facts(self) -> DeviceFacts:
        return DeviceFacts("GPU-fake", "Fake", 132, self.total, True, self.affinity)

    def create_context(self, sms: int | None) -> tuple[int, int | None]:
        if not self.contexts_left:
            raise CudaError(46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "cuCtxCreate")
        if self.free_bytes < self.context_size:
            raise CudaError(2, "CUDA_ERROR_OUT_OF_MEMORY", "cuCtxCreate")
        self.contexts_left -= 1
        self.free_bytes -= self.context_size
        self.current = len(self.contexts) + 1
        got = None if sms is None else max(8, sms + sms % 2)
        self.contexts[self.current] = got
        return self.current, got

    def use(self, context: int) -> None:
        self.current = context

    def destroy_context(self, context: int) -> None:
        leaked = [pointer for pointer, (_, owner) in self.blocks.items() if owner == context]
        assert not leaked, "memory of a destroyed context"
        del self.contexts[context]

    def synchronize(self) -> None:
        assert self.current in self.contexts

    def free_memory(self) -> int:
        return self.free_bytes

    def load(self, ptx: bytes, names: Sequence[str]) -> dict[str, tuple[str, int]]:
        for name in names:
            assert name.encode() in ptx
        return {name: (name, self.current) for name in names}

    def alloc(self, size: int) -> int:
        if size > self.free_bytes:
            raise CudaError(2, "CUDA_ERROR_OUT_OF_MEMORY", "cuMemAlloc")
        self.free_bytes -= size
        self._next += 0x1000
        self.blocks[self._next] = (size, self.current)
        return self._next

    def free(self, pointer: int) -> None:
        size, owner = self.blocks.pop(pointer)
        assert owner == self.current, "freed in another context"
        self.free_bytes += size

    def fill(self, pointer: int, pattern: int, words: int) -> None:
        assert self.blocks[pointer][0] >= 4 * words

    def write(self, pointer: int, data: bytes) -> None:
        assert self.blocks[pointer][0] >= len(data)

    def mapped_word(self) -> tuple[ctypes.c_int, int]:
        return self.word, 0x10

    def stream(self, *, blocking: bool = False, priority: int | None = None) -> int:
        number = 10 + len(self.streams)
        self.streams[number] = (self.current, blocking)
        self.priorities[number] = priority
        return number

    def pinned(self, size: int) -> int:
        self._next += 0x1000
        self.hosts[self._next] = size
        return self._next

    def free_pinned(self, pointer: int) -> None:
        del self.hosts[pointer]

    def copy_in(self, device: int, host: int, size: int, stream: int) -> None:
        self._enqueue("in", stream)
        assert self.blocks[device] == (size, self.current)
        assert self.hosts[host] == size

    def copy_out(self, host: int, device: int, size: int, stream: int) -> None:
        self.copy_in(device, host, size, stream)
        self.enqueued[-1] = ("out", stream)

    def _enqueue(self, what: str, stream: int) -> None:
        assert self.streams[stream][0] in {0, self.current}, "a stream of another context"
        self.enqueued.append((what, stream))

    def launch(
        self, function: tuple[str, int], blocks: int, threads: int, arguments: Arguments | None, stream: int = 0
    ) -> None:
        name, owner = function
        assert owner == self.current, "a function of another context"
        self._enqueue(name, stream)
        if name == "illegal_store":
            raise CudaError(700, "CUDA_ERROR_ILLEGAL_ADDRESS", "cuCtxSynchronize")
        self.launched.append((name, blocks, self.current))

    def event(self) -> object:
        return object()

    def record(self, event: object, stream: int = 0) -> None:
        self._enqueue("event", stream)
        self.recorded.add(event)

    def wait(self, event: object) -> None:
        assert event in self.recorded

    def happened(self, event: object) -> bool:
        return self.word.value != 0


def order(kernel: str, **values: Any) -> Order:
    return Order(kernel=kernel, parent=1, **values)
