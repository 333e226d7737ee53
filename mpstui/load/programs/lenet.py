"""The program of ``experiment training``: LeNet on random data of CIFAR-10's shape, with PyTorch.

Run by whichever Python has PyTorch; it imports nothing of mpstui. Prints images a second, again and again; what is
before the first training step is in none of them.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from typing import Any

WARM_STEPS = 20
NO_TORCH = 3
"""Exit status where PyTorch is missing, or sees no GPU."""


def main() -> int:
    """Train for some seconds."""
    parser = argparse.ArgumentParser(description="LeNet on random data of CIFAR-10's shape.")
    parser.add_argument("--batch", type=int, default=64, help="images a step")
    parser.add_argument("--seconds", type=float, default=5.0, help="of training")
    parser.add_argument("--images", type=int, default=10_000, help="images in the data set")
    options = parser.parse_args()
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        print(f"PyTorch is not installed for {sys.executable}", file=sys.stderr)
        return NO_TORCH
    if not torch.cuda.is_available():
        print("PyTorch sees no GPU here", file=sys.stderr)
        return NO_TORCH
    nn = torch.nn
    torch.manual_seed(1)
    images = torch.randn(options.images, 3, 32, 32, device="cuda")
    labels = torch.randint(0, 10, (options.images,), device="cuda")
    lenet = nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 5 * 5, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    ).to("cuda")  # fmt: skip
    optimizer = torch.optim.SGD(lenet.parameters(), lr=0.01, momentum=0.9)
    loss_of, step = nn.CrossEntropyLoss(), 0

    def train() -> None:
        nonlocal step
        first = step * options.batch % max(1, options.images - options.batch)
        chosen = slice(first, first + options.batch)
        optimizer.zero_grad(set_to_none=True)
        loss_of(lenet(images[chosen]), labels[chosen]).backward()
        optimizer.step()
        step += 1

    for _ in range(WARM_STEPS):
        train()
    torch.cuda.synchronize()
    end = time.perf_counter() + options.seconds
    while (begun := time.perf_counter()) < end:
        before = step
        while time.perf_counter() - begun < min(0.5, options.seconds / 4):
            train()
        torch.cuda.synchronize()
        print(f"images/s: {(step - before) * options.batch / (time.perf_counter() - begun):.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
