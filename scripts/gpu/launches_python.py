"""A client that launches as often as it is told: with PyTorch, with a CUDA graph of PyTorch's, or with CuPy."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any


def torch_launch() -> tuple[Callable[[], object], Callable[[], object]]:
    import torch

    values: Any = torch.zeros(1024, device="cuda")
    return lambda: values.add_(1.0), torch.cuda.synchronize


def graph_launch() -> tuple[Callable[[], object], Callable[[], object]]:
    import torch

    values: Any = torch.zeros(1024, device="cuda")
    values.add_(1.0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            values.add_(1.0)
    return graph.replay, torch.cuda.synchronize


def cupy_launch() -> tuple[Callable[[], object], Callable[[], object]]:
    import cupy

    kernel = cupy.RawKernel('extern "C" __global__ void nothing() {}', "nothing")
    return lambda: kernel((1,), (1,), ()), cupy.cuda.Device().synchronize


def main() -> None:
    launch, synchronize = {"torch": torch_launch, "graph": graph_launch, "cupy": cupy_launch}[sys.argv[1]]()
    launch()
    synchronize()
    print("ready", flush=True)
    for line in sys.stdin:
        word, amount = line.split()
        begun, done = time.perf_counter(), 0
        while done < float(amount) if word == "go" else time.perf_counter() - begun < float(amount):
            launch()
            done += 1
        synchronize()
        print(done, time.perf_counter() - begun, 0, flush=True)


main()
