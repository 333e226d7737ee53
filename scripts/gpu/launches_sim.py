"""Stands in for launches.cu in a rehearsal: launches in a libcuda.so of a page of code, as fast as a real one lets a
client, and a simulated client beside it, so that the node has one. Same lines on standard input, same answers."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
import fakecuda  # noqa: E402

from mpstui.observe.launches import LAUNCHES  # noqa: E402
from mpstui.sim import SimClient  # noqa: E402

PACE = 4e-6
"""Seconds of a launch, of those seen on an H200."""


def main() -> int:
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 0):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    client = SimClient(Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"]), "busy", env=dict(os.environ))
    with tempfile.TemporaryDirectory() as folder:
        launch = ctypes.CDLL(str(fakecuda.write(Path(folder) / "libcuda.so.1", sorted(LAUNCHES)))).cuLaunchKernel
        launch.argtypes, launch.restype = (), ctypes.c_int
        client.wait_settled()
        print("ready", flush=True)
        for line in sys.stdin:
            word, _, amount = line.partition(" ")
            begun, done = time.perf_counter(), 0
            while done < int(amount) if word == "go" else time.perf_counter() - begun < float(amount):
                launch()
                done += 1
                while time.perf_counter() < begun + done * PACE:
                    pass
            print(f"{done} {time.perf_counter() - begun:.6f} 0", flush=True)
    client.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
