"""LeNet on data of CIFAR-10's shape, with PyTorch: a small network that leaves most of a GPU idle.

    mpstui experiment command --command 'python examples/lenet_cifar10.py' --clients 1,4

The images are random, so nothing is downloaded; what is measured is the time to train. Prints images a second.
"""

from __future__ import annotations

import argparse
import sys
import time


def main() -> int:
    """Train for some steps; exit status 3 without PyTorch or a GPU."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000, help="training steps (default 2000)")
    parser.add_argument("--batch", type=int, default=64, help="images a step (default 64)")
    parser.add_argument("--images", type=int, default=10_000, help="images in the data set (default 10000)")
    options = parser.parse_args()
    try:
        import torch
        from torch import nn
    except ImportError:
        print("lenet_cifar10: PyTorch is not installed: pip install torch", file=sys.stderr)
        return 3
    if not torch.cuda.is_available():
        print("lenet_cifar10: PyTorch sees no GPU here", file=sys.stderr)
        return 3
    torch.manual_seed(1)
    device = torch.device("cuda")
    images = torch.randn(options.images, 3, 32, 32, device=device)
    labels = torch.randint(0, 10, (options.images,), device=device)
    lenet = nn.Sequential(
        nn.Conv2d(3, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 5 * 5, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    ).to(device)
    optimizer = torch.optim.SGD(lenet.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    start = time.perf_counter()
    for step in range(options.steps):
        first = step * options.batch % max(1, options.images - options.batch)
        chosen = slice(first, first + options.batch)
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(lenet(images[chosen]), labels[chosen])
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    print(f"{options.steps} steps in {seconds:.2f} s, {options.steps * options.batch / seconds:,.0f} images/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
