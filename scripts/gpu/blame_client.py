"""A client of PyTorch or CuPy for the check `blame`: computes until it is told what to do, a word a line.

    blame_client.py torch|cupy NAME        NAME only tells one from another in its command line

Says ``ready`` once it computes. ``fault``: an illegal store; ``trap``: a kernel that stops itself. Ends with a line
``end CODE``, the CUDA error by number where it is known, or when its input ends.
"""

from __future__ import annotations

import re
import select
import sys

ILLEGAL = 'extern "C" __global__ void bad() { *(volatile int *)0x10 = 1; }'
TRAP = 'extern "C" __global__ void bad() { asm volatile("trap;"); }'
CODES = {"cudaErrorIllegalAddress": 700, "cudaErrorLaunchFailure": 719, "illegal memory": 700, "launch failure": 719}


def main(kind: str) -> None:
    if kind == "torch":
        import torch

        a = torch.randn(2048, 2048, device="cuda")
        step, wait = (lambda: a @ a), torch.cuda.synchronize
    else:
        import cupy

        b = cupy.random.rand(2048, 2048, dtype=cupy.float32)
        step, wait = (lambda: b @ b), cupy.cuda.Device().synchronize
    step()
    wait()
    print("ready", flush=True)
    try:
        while True:
            for _ in range(20):
                step()
            wait()
            if select.select([sys.stdin], [], [], 0)[0]:
                word = sys.stdin.readline().strip()
                if not word:
                    return
                import cupy

                cupy.RawKernel(TRAP if word == "trap" else ILLEGAL, "bad")((1,), (1,), ())
                cupy.cuda.Device().synchronize()
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        code = next((code for name, code in CODES.items() if name in text), None)
        found = re.search(r"\b(700|719)\b", text)
        print("end", code or (found[0] if found else "unknown"), flush=True)
        import os

        os._exit(10)


if __name__ == "__main__":
    main(sys.argv[1])
