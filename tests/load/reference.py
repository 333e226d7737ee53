"""The kernels on a small case beside NumPy, on a real GPU; used by the tests and by scripts/gpu-load."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from mpstui.load.driver import DEFAULT_STREAMS, Arguments, CudaDriver
from mpstui.load.workloads import FUNCTIONS, ptx, sphere


class Device:
    """A context of its own with the functions of one kernel."""

    def __init__(self, driver: CudaDriver, kernel: str) -> None:
        self.driver = driver
        self.context, _ = driver.create_context(None)
        self.functions = driver.load(ptx(kernel), FUNCTIONS[kernel])

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.destroy_context(self.context)

    def put(self, data: bytes) -> int:
        pointer = self.driver.alloc(len(data))
        self.driver.write(pointer, data)
        return pointer


def nbody_error(driver: CudaDriver, numpy: Any, count: int = 1024, first: int = 256) -> float:
    """Largest error of an acceleration, relative to the mean one; bodies from ``first`` on, around the end."""
    data = sphere(count)
    with Device(driver, "nbody") as device:
        bodies, accelerations = device.put(data), device.put(bytes(16 * count))
        arguments = Arguments(
            ctypes.c_void_p(bodies),
            ctypes.c_void_p(accelerations),
            ctypes.c_int(count),
            ctypes.c_int(first),
            ctypes.c_int(count),
        )
        driver.launch(device.functions["accelerate"], count // 128, 128, arguments)
        driver.synchronize()
        got = numpy.frombuffer(driver.read(accelerations, 16 * count), dtype="<f4").reshape(count, 4)[:, :3]
    body = numpy.frombuffer(data, dtype="<f4").reshape(count, 4).astype("f8")
    apart = body[None, :, :3] - body[:, None, :3]
    cubed = (numpy.einsum("ijk,ijk->ij", apart, apart) + 1e-4) ** 1.5
    wanted = numpy.einsum("j,ijk->ik", body[:, 3], apart / cubed[:, :, None])
    scale = numpy.sqrt((wanted**2).sum(axis=1)).mean()
    return float(numpy.abs(got - wanted).max() / scale)


def triad_error(driver: CudaDriver, numpy: Any, words: int = 4 * 1024 * 3 + 777) -> float:
    """Largest error of an element; a number of words that fills no chunk, and blocks that go round several times."""
    random = numpy.random.default_rng(1)
    b, c = (random.random(4 * words, dtype="f4") for _ in range(2))
    with Device(driver, "triad") as device:
        a = device.put(bytes(16 * words))
        pointers = [a, device.put(b.tobytes()), device.put(c.tobytes())]
        arguments = Arguments(
            *(ctypes.c_void_p(pointer) for pointer in pointers), ctypes.c_float(0.5), ctypes.c_ulonglong(words)
        )
        driver.launch(device.functions["triad"], 3, 256, arguments)
        driver.synchronize()
        got = numpy.frombuffer(driver.read(a, 16 * words), dtype="<f4")
    return float(numpy.abs(got - (b + numpy.float32(0.5) * c)).max())


def copy_error(driver: CudaDriver, size: int = 1 << 20) -> int:
    """Bytes that differ after a way through pinned memory, the device, a second stream, and pinned memory again."""
    with Device(driver, "small") as device:
        hosts, streams = [driver.pinned(size) for _ in range(2)], [driver.stream(), driver.stream(blocking=True)]
        pointer, event = driver.alloc(size), driver.event()
        sent = bytes(number * 7 % 251 for number in range(size))
        ctypes.memmove(hosts[0], sent, size)
        driver.copy_in(pointer, hosts[0], size, streams[0])
        driver.record(event, streams[0])
        driver.wait(event)
        out = device.put(bytes(4 * 64 * 4))
        for stream in (*streams, *DEFAULT_STREAMS.values()):
            driver.launch(device.functions["tick"], 4, 64, Arguments(ctypes.c_void_p(out), ctypes.c_int(1)), stream)
        driver.copy_out(hosts[1], pointer, size, streams[1])
        driver.record(event, streams[1])
        driver.wait(event)
        got = ctypes.string_at(hosts[1], size)
        driver.synchronize()
        for host in hosts:
            driver.free_pinned(host)
    return sum(one != other for one, other in zip(sent, got, strict=True))


def fma_error(driver: CudaDriver, numpy: Any, steps: int = 100) -> float:
    """Largest relative error of a thread's sum of eight chains."""
    with Device(driver, "fma") as device:
        out = device.put(bytes(256 * 4))
        arguments = Arguments(ctypes.c_void_p(out), ctypes.c_int(steps), ctypes.c_float(0.999), ctypes.c_float(0.5))
        driver.launch(device.functions["fma_chains"], 1, 256, arguments)
        driver.synchronize()
        got = numpy.array(struct.unpack("<256f", driver.read(out, 256 * 4)))
    chains = numpy.arange(256)[:, None] + numpy.arange(8)[None, :].astype("f8")
    a, b = (float(numpy.float32(value)) for value in (0.999, 0.5))
    for _ in range(steps):
        chains = chains * a + b
    return float(numpy.abs(got / chains.sum(axis=1) - 1).max())
