"""Stands in for the compiled CUDA client of tests/gpu/client.cu on a simulated node: modes ``idle`` and ``alloc``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from mpstui.sim.client import SimClient


def main() -> int:
    """``idle S`` or ``alloc MIB S``: prints ``ready pid N sm N free MIB`` and ``end CODE NAME`` as the other does."""
    mode, *numbers = sys.argv[1:]
    size = int(numbers[0]) << 20 if mode == "alloc" else 0
    client = SimClient(Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"]), "idle", env=dict(os.environ), memory=size)
    try:
        client.wait_settled()
        if client.error or size > (client.free_memory or 0):
            print(f"end {client.error or 2} cudaErrorOfTheSimulation", flush=True)
            return 10
        print(f"ready pid {client.pid} sm {client.sm_count} free {(client.free_memory or 0) >> 20}", flush=True)
        if client.wait_status("lost", float(numbers[-1])):
            print(f"end {client.error} cudaErrorOfTheSimulation", flush=True)
            return 10
        client.tell("exit")
        client.wait(5)
        print("end 0 cudaSuccess", flush=True)
    finally:
        client.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
