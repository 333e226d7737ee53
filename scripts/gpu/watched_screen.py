"""mpstui that writes down when its counters are attached, and when they are not: for scripts/gpu-activity.

    python watched_screen.py FILE OPTIONS OF MPSTUI…

FILE is mapped by whoever measures too. Times are CLOCK_MONOTONIC's. In a rehearsal WATCHED_ALSO names the process that
really launches, beside the simulated clients.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import mpstui.node
from mpstui.core.model import ProcessKey
from mpstui.observe.activity import LaunchCounter
from mpstui.observe.sources import NodeSources
from mpstui.system.procfs import process_key

MOST: Final = 1000
SIZE: Final = 8 + 16 * MOST
"""Bytes of the file: how many windows have ended, then begin and end of each."""


class StampedCounter(LaunchCounter):
    """The counter of a real node, and a file of its windows."""

    file: mmap.mmap
    _begun: float | None = None
    _windows = 0

    def attach(self, keys: Collection[ProcessKey]) -> dict[ProcessKey, str]:
        if self._begun is None:
            self._begun = time.monotonic()
        also = [process_key(int(pid)) for pid in os.environ.get("WATCHED_ALSO", "").split()]
        return super().attach([*keys, *filter(None, also)])

    def detach(self) -> None:
        super().detach()
        if self._begun is not None and self._windows < MOST:
            struct.pack_into("dd", self.file, 8 + 16 * self._windows, self._begun, time.monotonic())
            self._windows += 1
            struct.pack_into("q", self.file, 0, self._windows)
        self._begun = None


def read_windows(file: mmap.mmap) -> list[tuple[float, float]]:
    """From before the counters were attached until they were not: those that have ended."""
    (count,) = struct.unpack_from("q", file, 0)
    return [struct.unpack_from("dd", file, 8 + 16 * number) for number in range(count)]


def main() -> int:
    with Path(sys.argv.pop(1)).open("r+b") as file:
        StampedCounter.file = mmap.mmap(file.fileno(), SIZE)
    opened = mpstui.node.open_node

    def open_node(*args: Sequence[Path], **options: Mapping[str, str]) -> tuple[NodeSources, tuple[Path, ...]]:
        sources, dirs = opened(*args, **options)  # type: ignore[arg-type]
        return replace(sources, launches=StampedCounter), dirs

    mpstui.node.open_node = open_node  # type: ignore[assignment]
    from mpstui.cli import main as program

    return program()


if __name__ == "__main__":
    raise SystemExit(main())
