"""mpstui with the CPU column of every simulated client different each second: the worst case of the benchmark."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import mpstui.sim
from mpstui.cli import main
from mpstui.observe.sources import ProcessFacts
from mpstui.sim import SimProcesses


class RestlessProcesses(SimProcesses):
    """Between 10 and 90 % of a core, another figure for each client and each second."""

    def facts(self, pids: Iterable[int]) -> dict[int, ProcessFacts]:
        now = time.time()
        facts = super().facts(pids)
        return {pid: replace(found, cpu_seconds=_spent(pid, now)) for pid, found in facts.items()}


def _spent(pid: int, now: float) -> float:
    """CPU seconds that never go down and grow unevenly."""
    second = int(now)
    return 0.5 * now + 0.4 * (hash((pid, second)) % 97) / 97


mpstui.sim.SimProcesses = RestlessProcesses  # type: ignore[misc]

if __name__ == "__main__":
    raise SystemExit(main())
