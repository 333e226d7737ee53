"""Stands in for launches.cu in a rehearsal: launches in a libcuda.so of a page of code, as fast as a real one lets a
client, and a simulated client beside it, so that the node has one. Same lines on standard input, same answers."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
import fakecuda  # noqa: E402

from mpstui.observe.activity import LAUNCHES  # noqa: E402
from mpstui.sim.client import SimClient  # noqa: E402

PACE = 3e-6
"""Seconds of a launch besides the call, of those seen on an H200."""


def slice_file(path: str) -> mmap.mmap:
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), 0)


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
            word, amount, *path = line.split()
            begun, done = time.monotonic(), 0
            trace, slices, due = slice_file(path[0]) if path else None, 0, 0.0
            while done < int(amount) if word == "go" else time.monotonic() - begun < float(amount):
                if trace is not None and (at := time.monotonic()) >= due:
                    struct.pack_into("dd", trace, 8 + 16 * slices, at, done)
                    slices += 1
                    struct.pack_into("q", trace, 0, slices)
                    due = at + 0.005
                launch()
                done += 1
                end = time.monotonic() + PACE  # not by the clock: what counting costs is not made up for
                while time.monotonic() < end:
                    pass
            print(f"{done} {time.monotonic() - begun:.6f} 0", flush=True)
    client.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
