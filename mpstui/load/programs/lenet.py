"""The program of ``experiment training``: LeNet on random data of CIFAR-10's shape, with PyTorch.

Run by whichever Python has PyTorch; it imports nothing of mpstui. Starting it takes longer than what is measured, so
it is started once and trains in turns, of which a file tells, a line each:

    BEGIN SECONDS BATCH GROUP COUNT

The programs of that group whose numbers are below COUNT train for so long from BEGIN on (time.monotonic), all at once;
then each prints its images a second. The others wait. ``end`` is the last line.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

WARM_STEPS = 20
POLL = 0.01
NO_TORCH = 3
"""Exit status where PyTorch is missing, or sees no GPU."""


class TrainingLine(NamedTuple):
    """One line of the file."""

    begin: float
    seconds: float
    batch: int


def turns(path: str, group: str, number: int) -> Iterator[TrainingLine]:
    """Those that this program takes part in, as they come."""
    with open(path, encoding="ascii") as file:
        line = ""
        while line != "end\n":
            line += file.readline()
            if not line.endswith("\n"):
                time.sleep(POLL)
                continue
            words = line.split()
            if len(words) == 5 and words[3] == group and number < int(words[4]):
                yield TrainingLine(float(words[0]), float(words[1]), int(words[2]))
            line = line if line == "end\n" else ""


def main() -> int:
    """Train when it is this program's turn."""
    parser = argparse.ArgumentParser(description="LeNet on random data of CIFAR-10's shape.")
    parser.add_argument("--turns", required=True, help="the file that tells when it is whose turn")
    parser.add_argument("--group", required=True)
    parser.add_argument("--number", type=int, required=True, help="of this program in its group, from 0 on")
    parser.add_argument("--batches", required=True, help="images a step, of all turns: 64,2048")
    parser.add_argument("--images", type=int, default=10_000, help="images in the data set")
    options = parser.parse_args()
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        print(f"PyTorch is not installed for {sys.executable}: pip install torch, or --python", file=sys.stderr)
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

    def train(batch: int) -> None:
        nonlocal step
        first = step * batch % max(1, options.images - batch)
        chosen = slice(first, first + batch)
        optimizer.zero_grad(set_to_none=True)
        loss_of(lenet(images[chosen]), labels[chosen]).backward()
        optimizer.step()
        step += 1

    begun = time.perf_counter()
    for batch in map(int, options.batches.split(",")):
        for _ in range(WARM_STEPS):
            train(batch)
    torch.cuda.synchronize()
    print(f"warm after s: {time.perf_counter() - begun:.1f}", flush=True)
    for turn in turns(options.turns, options.group, options.number):
        time.sleep(max(0.0, turn.begin - time.monotonic()))
        begun, before = time.perf_counter(), step
        while time.perf_counter() - begun < turn.seconds:
            train(turn.batch)
        torch.cuda.synchronize()
        print(f"images/s: {(step - before) * turn.batch / (time.perf_counter() - begun):.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
